-- write: prune the outcomes of one task
delete from outcome where task = :id

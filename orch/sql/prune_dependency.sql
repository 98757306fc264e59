-- write: prune the dependencies of one task
delete from dependency where task = :id

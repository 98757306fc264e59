-- write: prune the events of one task
delete from event where task = :id

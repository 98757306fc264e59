-- write: prune what was asked about one task
delete from ask where task = :id

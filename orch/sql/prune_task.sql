-- write: prune one task
delete from task where id = :id

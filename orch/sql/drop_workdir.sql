-- write: nothing is left of where an attempt worked
delete from workdir where task = :task and attempt = :attempt

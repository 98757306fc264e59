-- write: a task is to improve a skill by all that was said of it
update feedback set improvement = :improvement where skill = :skill and improvement is null

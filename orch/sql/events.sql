-- read: the moves of one task
select id, task, attempt, old_state, new_state, at, moved_by, reason, worker from event where task = :task order by id

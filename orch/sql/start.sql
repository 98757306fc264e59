-- move: start
update task
set state = 'processing', deadline_at = :deadline, updated_at = :now, moved_by = :by
where id = :id and attempts = :attempts and state = 'claimed'
returning id

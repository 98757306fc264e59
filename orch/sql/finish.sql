-- move: finish
update task set state = 'done', updated_at = :now, moved_by = :by, reason = :reason
where id = :id and attempts = :attempts and state = 'processing'
returning needed

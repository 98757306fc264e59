-- move: fail
update task
set state = :state, due_at = :due_at, retry_count = :retry_count, updated_at = :now, moved_by = :by, reason = :reason
where id = :id and attempts = :attempts and state in ('claimed', 'processing')
returning id

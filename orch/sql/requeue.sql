-- move: requeue
update task
set state = 'incoming', retry_count = 0, due_at = null, held = null, owner = null, deadline_at = null,
    expires_at = null, updated_at = :now, moved_by = :by, reason = :reason
where id = :id and state in ('failed', 'crashed', 'done')
returning id

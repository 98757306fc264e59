-- move: cancel
update task set state = 'failed', due_at = null, held = null, expires_at = null, updated_at = :now, moved_by = :by, reason = 'cancelled'
where id = :id and attempts = :attempts and state in ('incoming', 'retry-pending', 'claimed', 'processing', 'crashed')
returning id

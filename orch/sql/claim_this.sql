-- move: claim one certain task
update task
set state = 'processing', attempts = attempts + 1, owner = :owner, deadline_at = :deadline, claimed_at = :now,
    heartbeat_at = null, expires_at = null, due_at = null, updated_at = :now, moved_by = :by, reason = null
where id = :id and state = 'incoming'
returning id

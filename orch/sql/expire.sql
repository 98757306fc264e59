-- move: expire
update task
set state = 'failed', due_at = null, held = null, updated_at = :now, moved_by = :by, reason = 'expired'
where id in (
    select id from task
    where expires_at is not null and state in ('incoming', 'retry-pending') and expires_at <= :now
    limit :batch
)
returning id

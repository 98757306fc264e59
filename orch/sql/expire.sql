-- move: expire
update task
set state = 'failed', due_at = null, held = null, expires_at = null, updated_at = :now, moved_by = :by, reason = 'expired'
where id in (
    select id from task
    where expires_at is not null and expires_at <= :now
    limit :batch
)
returning id

-- move: claim
update task
set state = :state, attempts = attempts + 1, owner = :owner, deadline_at = :deadline, claimed_at = :now,
    heartbeat_at = null, expires_at = null, updated_at = :now, moved_by = :by, reason = null
where id = (
    select id from task indexed by task_claimable
    where state = 'incoming' and due_at is null and blocked = 0 and mode = :mode
        and (
            not exists (select 1 from pause)
            or not exists (
                select 1 from pause where (mode = :mode or mode = '*') and (until is null or until > :now)
            )
        )
    order by priority desc, id
    limit 1
)
returning id, priority, key, attempts, retry_count, timeout, created_at,
    (select body from payload where payload.task = task.id)

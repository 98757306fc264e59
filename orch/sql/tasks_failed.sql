-- read: the newest failed tasks; its own statement, as the failed have an index of their own
select
    id, mode, state, priority, key, attempts, retry_count, owner, due_at, blocked, timeout, deadline_at, claimed_at,
    heartbeat_at, expires_at, created_at, updated_at, moved_by, reason,
    (select body from payload where payload.task = task.id)
from task
where state = 'failed' and (:mode is null or mode = :mode) and id < :before
order by id desc
limit :limit

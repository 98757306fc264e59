-- read: every task that somebody owns or that crashed, by owner
select
    id, mode, state, priority, key, attempts, retry_count, owner, due_at, blocked, timeout, deadline_at, claimed_at,
    heartbeat_at, expires_at, created_at, updated_at, moved_by, reason,
    (select body from payload where payload.task = task.id)
from task where (state = 'claimed' or state = 'processing' or state = 'crashed') order by owner, id

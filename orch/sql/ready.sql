-- read: the DELEGATEs that can be claimed now, of every mode that is not paused, in the order of a claim
select
    id, mode, state, priority, key, attempts, retry_count, owner, due_at, blocked, timeout, deadline_at, claimed_at,
    heartbeat_at, expires_at, created_at, updated_at, moved_by, reason, payload.body
from task join payload on payload.task = task.id
where state = 'incoming' and due_at is null and blocked = 0
    and key is not null and json_type(payload.body, '$.delegate') = 'text'
    and not exists (
        select 1 from pause where (pause.mode = task.mode or pause.mode = '*') and (until is null or until > :now)
    )
order by priority desc, id
limit :limit

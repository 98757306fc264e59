-- read: DELEGATEs that were added or have moved between two edges
select
    id, mode, state, priority, key, attempts, retry_count, owner, due_at, blocked, timeout, deadline_at, claimed_at,
    heartbeat_at, expires_at, created_at, updated_at, moved_by, reason, payload.body
from task join payload on payload.task = task.id
where task.id in (
        select id from task where id > :task and id <= :last_task
        union
        select task from event where id > :event and id <= :last_event
    )
    and key is not null and json_type(payload.body, '$.delegate') = 'text'
order by id

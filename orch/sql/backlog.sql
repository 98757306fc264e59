-- read: live tasks by mode and kind of waiting, each branch through its own partial index
select mode, 'ready', count(*), min(created_at), max(priority) from task
where state = 'incoming' and due_at is null and blocked = 0 group by mode
union all
select mode, case state when 'incoming' then 'delayed' else 'retrying' end, count(*), min(created_at), max(priority)
from task where due_at is not null and held is null group by mode, state
union all
select mode, 'delayed', count(*), min(created_at), max(priority) from task
where held is not null group by mode
union all
select mode, 'blocked', count(*), min(created_at), max(priority) from task
where blocked > 0 and due_at is null and state = 'incoming' group by mode
union all
select mode, case state when 'crashed' then 'crashed' else 'running' end, count(*), min(created_at), max(priority)
from task where (state = 'claimed' or state = 'processing' or state = 'crashed') group by mode, state = 'crashed'

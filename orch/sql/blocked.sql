-- read: tasks that wait for one that cannot finish by itself: unknown, or failed
select dependency.task, dependency.named, needed.id, needed.state
from task indexed by task_blocked
join dependency on dependency.task = task.id and dependency.met = 0
left join task as needed on needed.id = dependency.needs
where task.blocked > 0 and task.state = 'incoming'
    and (needed.id is null or needed.state = 'failed')
order by dependency.task
limit :limit

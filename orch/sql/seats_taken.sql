-- read: the workers that have not ended, each with the task that it works on
select worker.id, worker.fire, worker.seat, worker.mode, worker.enrolled_at, worker.deadline_at, task.id, task.key,
    task.claimed_at
from worker left join task on task.owner = worker.id and (task.state = 'claimed' or task.state = 'processing')
where worker.ended_at is null
order by worker.id

-- read: tasks whose attempts have cost more than their order allows, with what they have cost and the limits: one task,
-- or those that had an attempt in a fire
select spend.task, task.key, total(cost_usd) as cost, json_extract(body, '$.budget_usd') as budget,
    coalesce(sum(tokens), 0) as used, json_extract(body, '$.token_limit') as quota
from spend join task on task.id = spend.task join payload on payload.task = spend.task
where spend.task in (select task from spend where fire = :fire union all select :task where :task is not null)
group by spend.task
having cost > budget + 1e-9 or used > quota
order by spend.task

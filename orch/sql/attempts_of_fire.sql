-- read: the attempts of one fire behind an event, in the order of their claims; of a gate the attempt that it judges
select attempt.task, attempt.attempt, attempt.mode, task.key, attempt.worker, attempt.fire, fire.kind, attempt.claimed_at,
    attempt.ended_at, attempt.outcome, exit_code, substr(coalesce(error, attempt.reason), 1, 1000), tokens, cost_usd,
    lineage.parent, relation,
    case relation when 'gate' then (
        select max(event.attempt) from event
        where event.task = lineage.parent and event.worker = attempt.worker and event.id < attempt.event
    ) end,
    attempt.event
from attempt
join task on task.id = attempt.task
left join fire on fire.id = attempt.fire
left join lineage on lineage.task = attempt.task
where attempt.fire = :fire and attempt.event > :after
    -- Only of a fire that died a worker may still claim when it is closed.
    and attempt.event <= (
        select case when ending <> 'died' then last_event else 9223372036854775807 end from fire where id = :fire
    )
order by attempt.event limit :limit

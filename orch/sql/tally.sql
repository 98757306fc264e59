-- read: what the attempts of one fire came to, by mode
select attempt.mode, count(*),
    count(*) filter (where outcome = 'done'),
    count(*) filter (where outcome = 'failed' and coalesce(reason, '') <> 'cancelled'),
    count(*) filter (where outcome = 'retry-pending'),
    count(*) filter (where outcome = 'crashed'),
    count(*) filter (where outcome = 'incoming'),
    coalesce(sum(tokens), 0), coalesce(sum(cost_usd), 0.0),
    count(*) filter (where tokens is not null or cost_usd is not null),
    count(*) filter (
        where tokens is null and cost_usd is null
            and outcome in ('done', 'failed', 'retry-pending', 'crashed') and coalesce(reason, '') <> 'cancelled'
    )
from attempt
where event > :first_event and fire = :fire
group by attempt.mode
order by attempt.mode

-- read: how many attempts that ended behind an event, in one fire or in any, did not say their tokens and their cost
select count(*) - count(spend.tokens), count(*) - count(spend.cost_usd)
from event
left join spend on spend.task = event.task and spend.attempt = event.attempt
where event.id > :after and event.at >= :since
    and event.old_state in ('claimed', 'processing')
    and event.new_state in ('done', 'failed', 'crashed', 'retry-pending')
    and (:fire is null or event.worker in (select id from worker where fire = :fire))

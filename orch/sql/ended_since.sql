-- read: ends of one fire's attempts behind an event, by the state that was reached
select event.new_state, count(*), max(event.id)
from event join worker on worker.id = event.worker
where event.id > :since and worker.fire = :fire
    and event.old_state in ('claimed', 'processing') and event.new_state not in ('claimed', 'processing')
group by event.new_state

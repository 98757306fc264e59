-- read: attempts of one fire that did not succeed, with what is known of why
select task, mode, outcome, coalesce(error, reason, '') from attempt
where event > :first_event and fire = :fire
    and (outcome in ('failed', 'retry-pending', 'crashed') or error is not null)
    and coalesce(reason, '') <> 'cancelled'
order by task

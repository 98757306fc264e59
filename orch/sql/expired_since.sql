-- read: how many tasks have expired behind the last event that an earlier note could tell of
select count(*) from event
where id > coalesce((select max(last_event) from fire where id <> :fire), 0)
    and new_state = 'failed' and reason = 'expired'

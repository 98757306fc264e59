-- read: how many claims one worker has made
select count(*) from event
where id > coalesce((select first_event from fire where fire.id = :fire), 0)
    and worker = :worker and old_state = 'incoming' and new_state in ('claimed', 'processing')

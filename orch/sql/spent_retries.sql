-- read: tasks that failed for good after their last crash, behind the last event that an earlier note could tell of
select event.task, task.mode, event.reason from event join task on task.id = event.task
where event.id > coalesce((select max(last_event) from fire where id <> :fire), 0)
    and event.old_state = 'crashed' and event.new_state = 'failed'
order by event.task

-- read: tasks that failed for good after their last crash, since an event
select event.task, task.mode, event.reason from event join task on task.id = event.task
where event.id > :first_event and event.old_state = 'crashed' and event.new_state = 'failed'
order by event.task

-- read: the newest moves, the newest first, of one mode or of all, looking back no further than an event
select event.id, event.task, event.attempt, event.old_state, event.new_state, event.at, event.moved_by, event.reason,
    event.worker, task.mode, task.key
from event join task on task.id = event.task
where event.id > :after and (:mode is null or task.mode = :mode)
order by event.id desc limit :limit

-- read: the task that holds a key
select task.id, task.mode, payload.body from task join payload on payload.task = task.id where task.key = :key

-- read: questions that are open, the oldest first
select id, task, kind, question, count, asked_at, last_at, closed_at, answer,
    (select mode from task where task.id = ask.task), (select key from task where task.id = ask.task)
from ask where closed_at is null order by id limit :limit

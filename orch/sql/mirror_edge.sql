-- read: how far the folders have come, and how far they could: in the log and in the tasks, a bounded step of both
select
    seen.event, seen.task,
    (select coalesce(max(id), 0) from (select id from event where id > seen.event order by id limit :batch)),
    (select coalesce(max(id), 0) from (select id from task where id > seen.task order by id limit :batch))
from (
    select
        coalesce((select value from mark where name = 'mirrored_event'), 0) as event,
        coalesce((select value from mark where name = 'mirrored_task'), 0) as task
) as seen

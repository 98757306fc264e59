-- read: tasks that ended before a moment and that nobody waits for, behind an id; never the one that moved last, as the
-- log's numbers must not begin again. One with a key stays, as its key is promised for the life of the queue.
select id from task
where id > :after and state in ('done', 'failed') and updated_at < :before and key is null
    and not exists (select 1 from dependency where dependency.needs = task.id and met = 0)
    and id is not (select task from event order by id desc limit 1)
order by id
limit :batch

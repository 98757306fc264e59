-- read: the newest task
select coalesce(max(id), 0) from task

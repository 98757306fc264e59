-- move: promote
update task
set state = 'incoming', due_at = null, updated_at = :now, moved_by = :by, reason = null
where id in (
    select id from task
    where due_at is not null and held is null and due_at <= :now
    order by due_at
    limit :batch
)
returning id

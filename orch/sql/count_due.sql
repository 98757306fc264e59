-- read: how much promote and expire would move
select
    (select count(*) from task where due_at is not null and held is null and due_at <= :now),
    (
        select count(*) from task
        where expires_at is not null and expires_at <= :now
    )

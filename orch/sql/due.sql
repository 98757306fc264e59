-- read: whether anything waits only for promote or expire; two index look-ups
select
    exists (
        select 1 from task
        where due_at is not null and held is null and due_at <= :now
    ),
    exists (
        select 1 from task
        where expires_at is not null and expires_at <= :now
    )

-- read: whether anything is due or expired, and whether a mode has a task to claim, without the write lock
select
    exists (select 1 from task where due_at is not null and held is null and due_at <= :now),
    exists (
        select 1 from task
        where expires_at is not null and expires_at <= :now
    ),
    exists (
        select 1 from task indexed by task_claimable
        where state = 'incoming' and due_at is null and blocked = 0 and mode = :mode
    ) and (
        not exists (select 1 from pause)
        or not exists (
            select 1 from pause where (mode = :mode or mode = '*') and (until is null or until > :now)
        )
    )

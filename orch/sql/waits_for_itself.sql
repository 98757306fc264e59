-- read: whether a task waits for itself, through those that it waits for
with recursive need (id) as (
    select needs from dependency where task = :id and met = 0
    union
    select dependency.needs from need join dependency on dependency.task = need.id and dependency.met = 0
)
select exists (select 1 from need where id = :id)

-- read: the task that a dependency names, by key first, else by id
select id, state = 'done' from task where key = :named
union all
select id, state = 'done' from task where id = :id and not exists (select 1 from task where key = :named)

-- read: the task that a dependency or a person names, by key or by id; a key is never a whole number
select id, state = 'done' from task where key = :named
union all
select id, state = 'done' from task where id = :id

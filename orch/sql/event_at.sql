-- read: the first event at or behind a number, and its time
select id, at from event where id >= :id order by id limit 1

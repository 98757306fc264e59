-- write: a fire ends
update fire
set closed_at = :now, ending = :ending, rollup = :rollup, last_event = coalesce((select max(id) from event), 0)
where id = :id and closed_at is null
returning id

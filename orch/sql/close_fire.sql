-- write: a fire ends
update fire set closed_at = :now, ending = :ending, rollup = :rollup where id = :id and closed_at is null returning id

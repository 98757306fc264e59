-- write: what was asked and granted
update fire set plan = :plan where id = :id

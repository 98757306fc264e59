-- write: the fire that was told "not now" is closed; no move
update task set held = null where held is not null and held = :fire

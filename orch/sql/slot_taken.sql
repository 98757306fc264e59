-- read: the fire that has a slot
select id, opened_at from fire where slot = :slot

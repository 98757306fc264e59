-- read: the newest fire that has ended
select id, closed_at, ending from fire where closed_at is not null and kind = 'fire' order by id desc limit 1

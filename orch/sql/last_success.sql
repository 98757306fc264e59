-- read: the newest fire that ended in one of two ways
select id, closed_at from fire
where closed_at is not null and kind = 'fire' and (ending = :one or ending = :other)
order by id desc limit 1

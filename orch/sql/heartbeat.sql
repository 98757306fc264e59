-- write: a sign of life; no move
update task set heartbeat_at = :now
where id = :id and attempts = :attempts and state in ('claimed', 'processing')
returning id

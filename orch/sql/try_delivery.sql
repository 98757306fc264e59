-- write: a delivery is tried; counted before it happens, so that one cut short is known
update delivery set tries = tries + 1, tried_at = :now
where note = :note and sink = :sink and delivered_at is null and (tried_at is null or tried_at < :given_up)
returning tries

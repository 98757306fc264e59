-- write: a delivery is tried; counted before it happens, so that one cut short is known
update delivery set tries = tries + 1 where note = :note and sink = :sink and delivered_at is null returning tries

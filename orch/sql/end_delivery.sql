-- write: a delivery succeeded or failed
update delivery set delivered_at = :delivered_at, tried_at = null, error = :error where note = :note and sink = :sink

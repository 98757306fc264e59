-- read: the newest event
select coalesce(max(id), 0) from event

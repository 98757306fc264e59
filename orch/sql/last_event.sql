-- read: the number of the newest event
select coalesce(max(id), 0) from event

-- write: how far the event log was read
update mark set value = coalesce((select max(id) from event), 0) where name = 'totals'

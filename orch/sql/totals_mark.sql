-- read: how far the event log was read for the totals
select value from mark where name = 'totals'

-- read: a row if the event log goes on behind what the totals were noted from
select 1 from event where id > (select value from mark where name = 'totals') limit 1

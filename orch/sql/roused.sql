-- read: how often somebody has wanted the poll to look
select coalesce((select value from mark where name = 'roused'), 0)

-- read: which ids of a range are there, and whether they ended before a moment
select id, state in ('done', 'failed') and updated_at < :before from task where id between :first and :last

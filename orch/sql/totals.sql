-- read: ended tasks by mode, the stored totals and the events behind them
select mode, state, sum(count) from (
    select mode, state, count from total
    union all
    select task.mode, moved.state, moved.change
    from (
        select task, new_state as state, 1 as change from event
        where id > (select value from mark where name = 'totals') and new_state in ('done', 'failed')
        union all
        select task, old_state, -1 from event
        where id > (select value from mark where name = 'totals') and old_state in ('done', 'failed')
    ) as moved
    join task on task.id = moved.task
)
group by mode, state

-- read: whether a claim still stands
select 1 from task where id = :id and attempts = :attempts and state in ('claimed', 'processing')

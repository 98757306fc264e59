-- read: when the next waiting task is due, of those that wait for nothing else
select min(due_at) from task where due_at is not null and held is null

-- read: why a task followed from another one
select relation from lineage where task = :task

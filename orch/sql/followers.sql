-- read: what followed from a task: each one's key and why
select task.key, lineage.relation from lineage join task on task.id = lineage.task
where lineage.parent = :task order by task.id

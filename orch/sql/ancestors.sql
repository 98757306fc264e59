-- read: what a task followed from, the nearest first: each task's id, mode and key, and how the one before came of it
with recursive line (id, relation, depth) as (
    select parent, relation, 1 from lineage where task = :task
    union all
    select lineage.parent, lineage.relation, depth + 1 from lineage join line on lineage.task = line.id where depth < 100
)
select line.id, task.mode, task.key, line.relation from line left join task on task.id = line.id order by depth

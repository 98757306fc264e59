-- read: tasks whose id a dependency named before they were there
select distinct task.id from dependency join task on task.id = cast(dependency.named as integer)
where dependency.needs is null and dependency.named = cast(task.id as text)

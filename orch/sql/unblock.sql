-- move: finish (its dependents wait for one task less, under however many names they wait for it)
update task
set blocked = blocked - (
    select count(*) from dependency where dependency.needs = :id and dependency.met = 0 and dependency.task = task.id
)
where id in (select task from dependency where needs = :id and met = 0)

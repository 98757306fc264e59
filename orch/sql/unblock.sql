-- move: finish (its dependents wait for one task less)
update task set blocked = blocked - 1
where id in (select task from dependency where needs = :id and met = 0)

-- read: whether an improvement of a skill is still open
select 1 from feedback join task on task.id = feedback.improvement
where feedback.skill = :skill and task.state not in ('done', 'failed') limit 1

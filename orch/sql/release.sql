-- move: release
update task
set state = 'incoming', due_at = :due_at, held = (select id from fire where id = :held and closed_at is null), owner = null, deadline_at = null, updated_at = :now,
    moved_by = :by, reason = :reason
where id = :id and attempts = :attempts and state in ('claimed', 'processing')
returning id

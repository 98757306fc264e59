-- move: crash
update task set state = 'crashed', updated_at = :now, moved_by = :by, reason = :reason
where id = :id and attempts = :attempts and state in ('claimed', 'processing')
returning id

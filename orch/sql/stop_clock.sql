-- write: an attempt has no deadline while something else is waited for
update task set deadline_at = null where id = :id and attempts = :attempts and state = 'processing'

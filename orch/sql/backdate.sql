-- write: since when a task has been at work, and how often it was tried, where a file knows better
update task set claimed_at = :claimed_at, heartbeat_at = null, retry_count = :retry_count
where id = :id and attempts = :attempts and state = 'processing'

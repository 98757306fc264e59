-- write: the deadline of a claim that names its own timeout; no move
update task set deadline_at = :deadline where id = :id and attempts = :attempts

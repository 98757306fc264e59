-- write: close what was asked about a task that goes on
update ask set closed_at = :now where task = :task and closed_at is null

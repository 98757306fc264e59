-- write: close a question, with its answer if it has one
update ask set closed_at = :now, answer = :answer where id = :id and closed_at is null
returning id

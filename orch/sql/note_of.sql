-- read: the note of one fire
select id, fire, created_at, title, body, quiet from note where fire = :fire

-- read: the newest notes
select id, fire, created_at, title, body, quiet from note order by id desc limit :limit

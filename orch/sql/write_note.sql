-- write: the one note of a fire
insert into note (fire, created_at, title, body, quiet) values (:fire, :now, :title, :body, :quiet) returning id

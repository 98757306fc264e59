-- write: a text for the next decider
insert into inbox (told_at, told_by, text) values (:now, :by, :text)
returning id

-- write: ask a person something about a task; asked again while it is open, it counts up
insert into ask (task, kind, question, asked_at, last_at) values (:task, :kind, :question, :now, :now)
on conflict (task, kind) where closed_at is null do update set
    question = excluded.question, count = count + 1, last_at = excluded.last_at
returning id

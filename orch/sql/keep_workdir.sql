-- write: where an attempt works, or what is left of that
insert into workdir (task, attempt, folder, below, branch, base)
values (:task, :attempt, :folder, :below, :branch, :base)
on conflict (task, attempt) do update set
    folder = excluded.folder, below = excluded.below, branch = excluded.branch, base = excluded.base

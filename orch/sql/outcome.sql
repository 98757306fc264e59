-- write: what is kept of an attempt beside its moves
insert into outcome (task, attempt, result, error, exit_code, output)
values (:task, :attempt, :result, :error, :exit_code, :output)
on conflict (task, attempt) do update set
    result = excluded.result, error = excluded.error, exit_code = excluded.exit_code, output = excluded.output

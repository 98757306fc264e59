-- write: keep an answer that waits for its verdict
insert into kept_answer (task, result) values (:task, :result) on conflict (task) do update set result = excluded.result

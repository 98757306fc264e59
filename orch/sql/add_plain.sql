-- move: add (many, without key or dependency): the payload follows its task
insert into task (mode, priority, due_at, expires_at, timeout, created_at, updated_at, moved_by)
values (:mode, :priority, :due_at, :expires_at, :timeout, :now, :now, :by);
insert into payload (task, body) values (last_insert_rowid(), :payload);

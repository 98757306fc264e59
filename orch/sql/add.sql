-- move: add
insert into task (mode, priority, key, due_at, expires_at, timeout, blocked, created_at, updated_at, moved_by)
values (:mode, :priority, :key, :due_at, :expires_at, :timeout, :blocked, :now, :now, :by)
returning id

-- write: pause a mode
insert into pause (mode, paused_at, paused_by, reason, until) values (:mode, :now, :by, :reason, :until)
on conflict (mode) do update set paused_at = excluded.paused_at, paused_by = excluded.paused_by,
    reason = excluded.reason, until = excluded.until

-- write: pause a mode until a moment at the least; a pause that lasts longer stays as it is
insert into pause (mode, paused_at, paused_by, reason, until) values (:mode, :now, :by, :reason, :until)
on conflict (mode) do update set paused_at = excluded.paused_at, paused_by = excluded.paused_by,
    reason = excluded.reason, until = excluded.until
where excluded.until > pause.until

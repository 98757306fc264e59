-- write: pause a mode; one that ends by itself does not take the place of one that does not
insert into pause (mode, paused_at, paused_by, reason, until) values (:mode, :now, :by, :reason, :until)
on conflict (mode) do update set paused_at = excluded.paused_at, paused_by = excluded.paused_by,
    reason = excluded.reason, until = excluded.until
where excluded.until is null or pause.until is not null

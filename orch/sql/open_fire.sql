-- write: a fire begins
insert into fire (day, slot, host, boot, pid, started, opened_at, first_event, kind)
values (:day, :slot, :host, :boot, :pid, :started, :now, coalesce((select max(id) from event), 0), :kind)
returning id

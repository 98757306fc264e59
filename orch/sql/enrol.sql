-- write: a worker begins
insert into worker (fire, seat, mode, host, boot, pid, started, task_cap, enrolled_at, deadline_at)
values (:fire, :seat, :mode, :host, :boot, :pid, :started, :task_cap, :now, :deadline)
on conflict do nothing
returning id

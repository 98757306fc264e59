-- read: workers that have not ended
select id, fire, seat, mode, host, boot, pid, started, task_cap, enrolled_at, deadline_at, ended_at, ending, lost from worker where ended_at is null

-- read: every worker of one fire, from one seat on
select id, fire, seat, mode, host, boot, pid, started, task_cap, enrolled_at, deadline_at, ended_at, ending, lost from worker where fire = :fire and seat >= :first order by id

-- read: the newest fires
select id, day, slot, host, boot, pid, started, opened_at, hygiene_at, decide_at, fan_out_at, barrier_at, rollup_at,
    closed_at, ending, first_event, plan, rollup, kind from fire order by id desc limit :limit

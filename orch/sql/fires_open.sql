-- read: fires that have not ended (at most one of each kind)
select id, day, slot, host, boot, pid, started, opened_at, hygiene_at, decide_at, fan_out_at, barrier_at, rollup_at,
    closed_at, ending, first_event, plan, rollup, kind from fire where closed_at is null order by kind

-- write: a phase of a fire begins
update fire set
    hygiene_at = case :phase when 'hygiene' then :now else hygiene_at end,
    decide_at = case :phase when 'decide' then :now else decide_at end,
    fan_out_at = case :phase when 'fan_out' then :now else fan_out_at end,
    barrier_at = case :phase when 'barrier' then :now else barrier_at end,
    rollup_at = case :phase when 'rollup' then :now else rollup_at end
where id = :id and closed_at is null
returning id

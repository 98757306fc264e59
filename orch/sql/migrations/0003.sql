-- Pauses that end by themselves; and checks that say of null what they mean, as SQLite below 3.45 finds it no JSON.

alter table pause add column until text check (until glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z');

drop view attempt;

create table outcome_anew (
    task integer not null,
    attempt integer not null,
    result text check (result is null or json_valid(result)),
    error text,
    exit_code integer,
    output text,
    primary key (task, attempt)
) strict, without rowid;

insert into outcome_anew select task, attempt, result, error, exit_code, output from outcome;
drop table outcome;
alter table outcome_anew rename to outcome;

create table fire_anew (
    id integer primary key autoincrement,
    day text not null check (day glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]'),
    slot text unique,
    host text not null,
    boot text not null,
    pid integer not null,
    started text not null,
    opened_at text not null check (opened_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    hygiene_at text check (hygiene_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    decide_at text check (decide_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    fan_out_at text check (fan_out_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    barrier_at text check (barrier_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    rollup_at text check (rollup_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    closed_at text check (closed_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    ending text,
    -- The newest event when the fire began: its own story starts behind it.
    first_event integer not null,
    last_event integer,
    plan text check (plan is null or json_valid(plan)),
    rollup text check (rollup is null or json_valid(rollup))
) strict;

insert into fire_anew select
    id, day, slot, host, boot, pid, started, opened_at, hygiene_at, decide_at, fan_out_at, barrier_at, rollup_at,
    closed_at, ending, first_event, last_event, plan, rollup
from fire;
drop table fire;
alter table fire_anew rename to fire;

create unique index fire_open on fire ((closed_at is null)) where closed_at is null;
create index fire_day on fire (day);

create view attempt as
select
    began.id as event,
    began.task,
    began.attempt,
    task.mode,
    began.worker,
    worker.fire,
    began.at as claimed_at,
    ended.at as ended_at,
    ended.new_state as outcome,
    ended.reason,
    outcome.exit_code,
    outcome.error,
    outcome.result,
    outcome.output,
    spend.tokens,
    spend.cost_usd
from event as began
join task on task.id = began.task
left join event as ended
    on ended.task = began.task
    and ended.attempt = began.attempt
    and ended.old_state in ('claimed', 'processing')
    and ended.new_state not in ('claimed', 'processing')
left join outcome on outcome.task = began.task and outcome.attempt = began.attempt
left join spend on spend.task = began.task and spend.attempt = began.attempt
left join worker on worker.id = began.worker
where began.old_state = 'incoming' and began.new_state in ('claimed', 'processing');

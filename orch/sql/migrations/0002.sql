-- What attempts cost, what people tell the decider, and the fires that a cap refused.

create table spend (
    task integer not null,
    attempt integer not null,
    mode text not null,
    fire integer,
    at text not null check (at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    -- As reported; null where the report does not name it.
    tokens integer check (tokens >= 0),
    cost_usd real check (cost_usd >= 0),
    primary key (task, attempt)
) strict, without rowid;

-- Both hold all that a sum needs, so that a budget is judged without reading a row.
create index spend_at on spend (at, fire, mode, tokens, cost_usd);
create index spend_fire on spend (fire, at, mode, tokens, cost_usd);

create table inbox (
    id integer primary key autoincrement,
    told_at text not null check (told_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    told_by text,
    text text not null,
    read_at text check (read_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    -- The fire whose decider was given the text; null when a person took it back.
    fire integer
) strict;

create index inbox_unread on inbox (id) where read_at is null;

create table refusal (
    id integer primary key autoincrement,
    at text not null check (at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    slot text,
    cap text not null,
    told text not null
) strict;

drop view attempt;
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

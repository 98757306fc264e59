-- The whole queue: tasks with their payloads and outcomes, the log of their moves, and the fires that drained them.
-- Every time is UTC text of one fixed width, so that comparing texts compares moments; a CHECK refuses other spellings.

create table task (
    id integer primary key autoincrement,
    mode text not null,
    -- One of seven; which, the triggers below say.
    state text not null default 'incoming',
    priority integer not null default 0 check (priority between -100 and 100),
    key text,
    attempts integer not null default 0,
    retry_count integer not null default 0 check (retry_count >= 0),
    owner integer,
    -- Not before this time. Null means claimable now, so the index of the claim holds no row that has to wait.
    -- Only a waiting task has one.
    due_at text check (due_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    -- How many tasks it still waits for.
    blocked integer not null default 0 check (blocked >= 0),
    -- Another task waits for this one: only then does a finish look for dependents.
    needed integer not null default 0,
    -- The fire that was told "not now": promote leaves the row alone until that fire is closed.
    held integer,
    timeout real check (timeout > 0),
    deadline_at text check (deadline_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    claimed_at text check (claimed_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    heartbeat_at text check (heartbeat_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    expires_at text check (expires_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    created_at text not null check (created_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    updated_at text not null check (updated_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    moved_by text,
    reason text
) strict;

create unique index task_key on task (key) where key is not null;
create index task_claimable on task (mode, priority desc, id)
    where state = 'incoming' and due_at is null and blocked = 0;
create index task_due on task (due_at, mode)
    where due_at is not null and held is null;
create index task_held on task (held) where held is not null;
create index task_expiring on task (expires_at)
    where expires_at is not null;
create index task_blocked on task (mode) where blocked > 0;
create index task_owned on task (owner) where state = 'claimed' or state = 'processing' or state = 'crashed';
create index task_failed on task (id) where state = 'failed';

-- Apart from the task, so that a move does not write a large payload again.
create table payload (
    task integer primary key,
    body text not null check (json_valid(body))
) strict;

create table outcome (
    task integer not null,
    attempt integer not null,
    result text check (json_valid(result)),
    error text,
    exit_code integer,
    output text,
    primary key (task, attempt)
) strict, without rowid;

create table dependency (
    task integer not null,
    -- The name that was given: a key, or the id as text when no task of that key or id was known yet.
    named text not null,
    needs integer,
    met integer not null default 0,
    primary key (task, named)
) strict, without rowid;

create index dependency_needs on dependency (needs) where met = 0;
create index dependency_unknown on dependency (named) where needs is null;

create table event (
    -- Written by the trigger alone, from columns that are checked.
    id integer primary key,
    task integer,
    attempt integer,
    old_state text,
    new_state text,
    at text,
    moved_by text,
    reason text,
    worker integer
) strict;

create index event_task on event (task);

-- The guard and the log in one: no move but the legal ones, and none without its event. Nested cases jump where `in`
-- would build a table for each move; a trigger before the update would make SQLite read every row twice.
create trigger task_moves after update of state, attempts on task
when old.state <> new.state or old.attempts <> new.attempts
begin
    select raise(abort, 'illegal move of a task')
    where not case old.state
        when 'incoming' then case new.state
            when 'processing' then new.attempts = old.attempts + 1
            when 'claimed' then new.attempts = old.attempts + 1
            when 'failed' then new.attempts = old.attempts
            else 0
        end
        -- Only a claim counts an attempt.
        else new.attempts = old.attempts and case old.state
            when 'processing' then case new.state
                when 'done' then 1 when 'failed' then 1 when 'incoming' then 1 when 'retry-pending' then 1
                when 'crashed' then 1
                else 0
            end
            when 'claimed' then case new.state
                when 'processing' then 1 when 'failed' then 1 when 'incoming' then 1 when 'retry-pending' then 1
                when 'crashed' then 1
                else 0
            end
            when 'retry-pending' then case new.state when 'incoming' then 1 when 'failed' then 1 else 0 end
            when 'crashed' then case new.state
                when 'retry-pending' then 1 when 'failed' then 1 when 'incoming' then 1
                else 0
            end
            else new.state = 'incoming'
        end
    end;
    insert into event (task, attempt, old_state, new_state, at, moved_by, reason, worker)
    values (
        new.id, new.attempts, old.state, new.state, new.updated_at, new.moved_by, new.reason,
        coalesce(new.owner, old.owner)
    );
end;

create trigger task_begins_incoming after insert on task when new.state <> 'incoming'
begin
    select raise(abort, 'illegal move of a task: it begins as incoming');
end;

create trigger event_is_append_only before update on event
begin
    select raise(abort, 'the event log is append-only');
end;

create trigger event_outlives_no_task before delete on event
when exists (select 1 from task where id = old.task)
begin
    select raise(abort, 'the event log is append-only');
end;

create table pause (
    mode text primary key,
    paused_at text not null check (paused_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    paused_by text,
    reason text
) strict, without rowid;

create table worker (
    id integer primary key autoincrement,
    fire integer,
    seat integer,
    mode text,
    host text not null,
    boot text not null,
    pid integer not null,
    started text not null,
    task_cap integer,
    enrolled_at text not null check (enrolled_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    deadline_at text check (deadline_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    ended_at text check (ended_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    ending text,
    lost integer not null default 0
) strict;

create index worker_present on worker (fire) where ended_at is null;
-- One worker a seat, whoever picks its job up.
create unique index worker_seat on worker (fire, seat) where fire is not null;

create table fire (
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
    plan text check (json_valid(plan)),
    rollup text check (json_valid(rollup))
) strict;

create unique index fire_open on fire ((closed_at is null)) where closed_at is null;
create index fire_day on fire (day);

create table note (
    id integer primary key autoincrement,
    fire integer not null unique,
    created_at text not null check (created_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    title text not null,
    body text not null,
    quiet integer not null
) strict;

create table delivery (
    note integer not null,
    sink text not null,
    tries integer not null default 0,
    tried_at text check (tried_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    delivered_at text check (delivered_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    error text,
    primary key (note, sink)
) strict, without rowid;

create index delivery_open on delivery (note) where delivered_at is null;

-- Ended tasks are counted from the event log, as far as it was read: no count is kept in the path of a claim.
create table total (
    mode text not null,
    state text not null,
    count integer not null,
    primary key (mode, state)
) strict, without rowid;

create table mark (
    name text primary key,
    value integer not null
) strict, without rowid;

insert into mark (name, value) values ('totals', 0);

-- When the queue was made: a watchdog counts from it until the first fire.
create table origin (
    id integer primary key check (id = 1),
    made_at text not null check (made_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z')
) strict;

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
    outcome.output
from event as began
join task on task.id = began.task
left join event as ended
    on ended.task = began.task
    and ended.attempt = began.attempt
    and ended.old_state in ('claimed', 'processing')
    and ended.new_state not in ('claimed', 'processing')
left join outcome on outcome.task = began.task and outcome.attempt = began.attempt
left join worker on worker.id = began.worker
where began.old_state = 'incoming' and began.new_state in ('claimed', 'processing');

-- The queue in the words of a plain work table.
create view task_queue as
select
    task.id,
    task.mode,
    case
        when task.state in ('incoming', 'retry-pending') then 'queued'
        when task.state in ('claimed', 'processing', 'crashed') then 'in_progress'
        else task.state
    end as status,
    payload.body as payload,
    case when task.owner is not null then 'w' || task.owner end as claimed_by,
    task.claimed_at,
    task.attempts,
    task.created_at,
    task.updated_at
from task
left join payload on payload.task = task.id;

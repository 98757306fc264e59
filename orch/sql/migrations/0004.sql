-- Questions that only a person can answer, and which task followed from which.

create table ask (
    id integer primary key autoincrement,
    task integer not null,
    kind text not null,
    question text not null,
    -- How often it has been asked while it was open.
    count integer not null default 1 check (count > 0),
    asked_at text not null check (asked_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    last_at text not null check (last_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    closed_at text check (closed_at glob '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    answer text
) strict;

create unique index ask_open on ask (task, kind) where closed_at is null;

create table lineage (
    task integer primary key,
    parent integer not null,
    -- Why it followed: escalation, answer, gate or improvement.
    relation text not null
) strict;

create index lineage_parent on lineage (parent);

create table kept_answer (
    task integer primary key,
    -- An agent's answer that waits for the verdict of the gate, as JSON: it is judged again after a crash, not made again.
    result text not null check (json_valid(result))
) strict;

-- What agents say of the skills that they used.
create table feedback (
    id integer primary key autoincrement,
    task integer not null,
    skill text not null,
    score real,
    body text not null check (json_valid(body)),
    -- The task that is to improve the skill by it.
    improvement integer
) strict;

create index feedback_skill on feedback (skill) where improvement is null;

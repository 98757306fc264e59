-- The working folders that attempts had of their own, as far as anything is left of them.

create table workdir (
    task integer not null,
    attempt integer not null,
    -- Relative to the state folder; null when it is gone.
    folder text,
    -- Where in it the agent works: the project's own place below the root of its repository.
    below text not null,
    -- Of a worktree alone: its branch, null when nothing came to it, and the commit that it began at.
    branch text,
    base text,
    primary key (task, attempt)
) strict, without rowid;

-- Polls beside fires: at work on the same queue at the same time, one of each at the most.

alter table fire add column kind text not null default 'fire';
drop index fire_open;
create unique index fire_open on fire (kind) where closed_at is null;

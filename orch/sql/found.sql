-- write: when the queue was made, once
insert into origin (id, made_at) values (1, :now) on conflict do nothing

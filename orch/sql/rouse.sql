-- write: somebody wants the poll to look
insert into mark (name, value) values ('roused', 1) on conflict (name) do update set value = value + 1

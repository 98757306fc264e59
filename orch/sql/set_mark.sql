-- write: how far something has come
insert into mark (name, value) values (:name, :value) on conflict (name) do update set value = excluded.value

-- write: one total, as far as the event log was read
insert into total (mode, state, count) values (:mode, :state, :count)
on conflict (mode, state) do update set count = excluded.count

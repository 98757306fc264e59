-- write: a note is to go to a sink
insert into delivery (note, sink) values (:note, :sink) on conflict (note, sink) do nothing

-- move: add (its payload)
insert into payload (task, body) values (:task, :payload)

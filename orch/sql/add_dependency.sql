-- move: add (what it waits for)
insert into dependency (task, named, needs, met) values (:task, :named, :needs, :met)

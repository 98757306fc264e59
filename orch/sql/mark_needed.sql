-- move: add (the one that others wait for)
update task set needed = 1 where id = :id and needed = 0

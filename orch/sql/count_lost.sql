-- write: a worker came too late with an answer
update worker set lost = lost + 1 where id = :id

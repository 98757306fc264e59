-- write: a worker ends, or is found missing; the first word stands
update worker set ended_at = :now, ending = :ending where id = :id and ended_at is null returning id

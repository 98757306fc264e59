-- write: prune the payload of one task
delete from payload where task = :id

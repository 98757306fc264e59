-- read: what one task waits for
select named, needs, met from dependency where task = :task order by named

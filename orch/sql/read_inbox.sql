-- write: a decider was given a text, or a person took it back
update inbox set read_at = :now, fire = :fire where id = :id and read_at is null
returning id

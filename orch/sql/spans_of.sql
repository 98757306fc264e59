-- read: when each finished attempt of one fire began and ended
select mode, claimed_at, ended_at from attempt
where event > :first_event and fire = :fire and ended_at is not null

-- read: what is paused
select mode, paused_at, paused_by, reason, until from pause where until is null or until > :now order by mode

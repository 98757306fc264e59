-- read: what is paused
select mode, paused_at, paused_by, reason from pause order by mode

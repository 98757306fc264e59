-- read: when the queue was made
select made_at from origin

-- read: how many fires a day has had
select count(*) from fire where day = :day and kind = 'fire'

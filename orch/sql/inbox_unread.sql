-- read: texts that no decider was given yet, in the order in which they came
select id, told_at, told_by, text, read_at, fire from inbox where read_at is null order by id

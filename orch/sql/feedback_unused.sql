-- read: what was said of a skill that no improvement has taken up
select body from feedback where skill = :skill and improvement is null order by id

-- write: prune the kept answer of one task
delete from kept_answer where task = :id

-- write: the answer has had its verdict
delete from kept_answer where task = :task

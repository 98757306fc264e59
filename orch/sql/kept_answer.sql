-- read: the answer of a task that waits for its verdict
select result from kept_answer where task = :task

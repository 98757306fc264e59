-- write: prune what the agent of one task said of skills
delete from feedback where task = :id

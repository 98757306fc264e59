-- write: what an agent says of a skill
insert into feedback (task, skill, score, body) values (:task, :skill, :score, :body)

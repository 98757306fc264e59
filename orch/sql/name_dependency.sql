-- move: add (dependencies that named its key before it came)
update dependency set needs = :id where named = :key and needs is null returning task

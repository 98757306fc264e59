-- write: prune what is known of the working folders of one task
delete from workdir where task = :id

-- read: where the attempts of one task worked, as far as anything is left of that
select task, attempt, folder, below, branch, base from workdir where task = :task order by attempt

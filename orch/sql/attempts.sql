-- read: the attempts of one task
select task, attempt, worker, fire, claimed_at, ended_at, outcome, reason, exit_code, error, result, output, tokens,
    cost_usd
from attempt where task = :task order by attempt

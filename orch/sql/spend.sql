-- write: what an attempt says that it cost, whether its claim still stands or not
insert into spend (task, attempt, mode, fire, at, tokens, cost_usd)
values (:task, :attempt, :mode, (select fire from worker where id = :owner), :now, :tokens, :cost_usd)
on conflict do nothing

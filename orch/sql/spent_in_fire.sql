-- read: what the attempts of one fire have reported, in all
select coalesce(sum(tokens), 0), coalesce(sum(cost_usd), 0.0) from spend where fire = :fire

-- read: what was reported from one moment to before another, in all
select coalesce(sum(tokens), 0), coalesce(sum(cost_usd), 0.0) from spend where at >= :since and at < :until

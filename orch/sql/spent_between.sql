-- read: what was reported from one moment to before another, by fire and mode
select fire, mode, count(*), coalesce(sum(tokens), 0), coalesce(sum(cost_usd), 0.0) from spend
where at >= :since and at < :until
group by fire, mode

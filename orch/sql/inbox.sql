-- read: texts for the decider, the newest first; only unread ones if so asked
select id, told_at, told_by, text, read_at, fire from inbox
where :all or read_at is null
order by id desc limit :limit

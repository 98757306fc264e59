-- read: the first fire whose spans are still to be written; where none ever were, the newest that has ended
select coalesce(
    (select value + 1 from mark where name = 'spans'),
    (select max(id) from fire where closed_at is not null),
    1
)

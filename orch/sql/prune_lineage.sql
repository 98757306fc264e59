-- write: prune what one task followed from
delete from lineage where task = :id

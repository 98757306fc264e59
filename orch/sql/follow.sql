-- write: which task another one followed from, and why
insert into lineage (task, parent, relation) values (:task, :parent, :relation)

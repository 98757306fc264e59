-- read: the newest refusal of a fire
select at, slot, cap, told from refusal order by id desc limit 1

-- write: a fire was refused by a cap
insert into refusal (at, slot, cap, told) values (:now, :slot, :cap, :told)

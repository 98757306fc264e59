-- move: finish (its dependencies are met, once)
update dependency set met = 1 where needs = :id and met = 0

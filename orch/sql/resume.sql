-- write: resume a mode, or all of them
delete from pause where mode = :mode or :mode = '*' returning mode, until is null or until > :now

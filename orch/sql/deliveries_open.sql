-- read: notes on their way, oldest first
select delivery.note, sink, tries, delivered_at, error, note.fire, created_at, title, body
from delivery join note on note.id = delivery.note
where delivered_at is null order by delivery.note, sink

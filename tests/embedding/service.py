"""A small imaginary service: a print shop that takes orders and has them printed by the queue."""

from __future__ import annotations

from typing import Any

from orch import NotNow, Queue, Task

PAPER = 500


def take(queue: Queue, customer: str, pages: int, *, urgent: bool = False) -> int:
    """Take an order: the number of its task. The invoice is written when it is printed."""
    order = {"customer": customer, "pages": pages}
    printing = queue.add("print", order, priority=10 if urgent else 0)
    queue.add("invoice", order, key=f"invoice-{printing.id}", after=[printing.id])
    return printing.id


def print_out(task: Task) -> dict[str, Any]:
    """Print an order, if there is paper for it."""
    pages = task.payload["pages"]
    if pages > PAPER:
        raise ValueError(f"{pages} pages are more than there is paper for")
    return {"sheets": (pages + 1) // 2}


def write_invoice(task: Task) -> str:
    """Write the invoice of an order; regular customers get it thirty days later."""
    if task.payload["customer"] == "library" and task.attempts == 1:
        raise NotNow("invoiced in thirty days", retry_after=30 * 86400)
    return f"{task.payload['customer']} owes {task.payload['pages'] * 0.05:.2f}"


WORK = {"print": print_out, "invoice": write_invoice}

"""Both ways at once: what was dropped comes into the queue, and the files follow their tasks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from orch.project import Project
from orch.queue import Queue

if TYPE_CHECKING:
    from orch.folders.taking import Taken


class Exchange:
    """The exchange between one queue and its folders, as one process sees them from look to look."""

    def __init__(self, path: str, roles: tuple[str, ...], *, settled: float | None = None) -> None:
        # Here and below, as it loads a reader that a project without agents has no use for.
        from orch.folders.root import Root
        from orch.folders.taking import SETTLED, Dropped

        self.root = Root(path)
        self.dropped = Dropped(self.root, list(roles), SETTLED if settled is None else settled)
        self.unsettled = 0

    @classmethod
    def of(cls, project: Project) -> Exchange | None:
        """That of a project; None where its DELEGATEs do not lie as files."""
        return None if project.queue_root is None else cls(project.queue_root, project.roles)

    def run(self, queue: Queue) -> Taken:
        """Once both ways: what was taken. Trouble with the files themselves is told of in it, and breaks nothing."""
        from orch.folders.mirror import mirror
        from orch.folders.taking import Taken

        taken = Taken()
        try:
            with self.root.alone() as mine:
                if mine:
                    # In this order: what was taken and not moved by somebody who died is not written a second time.
                    self.dropped.take(queue, taken)
                    mirror(queue, self.root)
        except OSError as error:
            taken.refused.append(f"{self.root.path}: {error.strerror or error}")
        self.unsettled = taken.unsettled
        return taken

    def show(self, queue: Queue) -> None:
        """Only the one way: bring the files to where their tasks are, as far as that is possible now."""
        from orch.folders.mirror import mirror

        with suppress(OSError), self.root.alone() as mine:
            if mine:
                mirror(queue, self.root)

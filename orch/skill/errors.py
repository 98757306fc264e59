"""What the orchestrator raises. Each is also of the built-in kind that the protocol's text names for it."""

from __future__ import annotations

from orch.errors import OrchError


class OrchestratorError(OrchError):
    """The kind of all of them."""


class QueueValidationError(OrchestratorError, ValueError):
    """A DELEGATE, or a name, that is not one."""

    exit_code = 8


class TaskClaimError(OrchestratorError, OSError):
    """A task that cannot be had: somebody has it already."""

    exit_code = 9


class TaskMissing(TaskClaimError, FileNotFoundError):
    """A task that is not there."""

    exit_code = 3


class SubAgentError(OrchestratorError):
    """No agent worked on the task, or it gave no answer."""


class HandbackParseError(OrchestratorError, ValueError):
    """An answer that cannot be taken."""

    exit_code = 8

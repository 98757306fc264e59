"""The protocol's orchestrator as a class, for programs that were written against it: a thin face over the queue."""

from orch.skill.errors import HandbackParseError, OrchestratorError, QueueValidationError, SubAgentError, TaskClaimError
from orch.skill.orchestrator import OrchestratorSkill
from orch.skill.polling import PollingConfig

__all__ = [
    "HandbackParseError",
    "OrchestratorError",
    "OrchestratorSkill",
    "PollingConfig",
    "QueueValidationError",
    "SubAgentError",
    "TaskClaimError",
]

"""DELEGATE and HANDBACK: what goes to an agent and what comes back, read tolerantly where nothing depends on it.

Free text is taken as it was meant; a control field (an id, a role, a status) is taken exactly or refused.
"""

from orch.handoff.delegate import Delegate, read_delegates
from orch.handoff.handback import Handback, Measured, Tokens, measured_in, read_handback
from orch.handoff.remarks import HandoffError, Remark
from orch.handoff.words import ROLES

__all__ = [
    "ROLES",
    "Delegate",
    "Handback",
    "HandoffError",
    "Measured",
    "Remark",
    "Tokens",
    "measured_in",
    "read_delegates",
    "read_handback",
]

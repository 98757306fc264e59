"""What is shown on a screen: pure functions from records to rich renderables.

Text that comes from tasks or files is always a `Text`, never markup, with its control characters escaped.
"""

from __future__ import annotations

from orch.views.about_fires import (
    between as between,
    fires as fires,
    hygiene as hygiene,
    notes as notes,
    plan as plan,
    progress as progress,
    rehearsal as rehearsal,
    rollup as rollup,
)
from orch.views.about_project import (
    account as account,
    inbox as inbox,
    standing as standing,
    watched as watched,
)
from orch.views.about_spans import spans as spans
from orch.views.about_tasks import asks as asks, task as task, tasks as tasks
from orch.views.live import Screenful as Screenful, line as line

"""The three lines for a crontab: fire, sweep, watchdog, when the schedule says so. A pure function."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from orch.project import Schedule

UNSAID = Schedule()
EVERY_FOUR_HOURS = "0 */4 * * *"
EVERY_QUARTER = "*/15 * * * *"
EVERY_HALF_HOUR = "*/30 * * * *"


def lines(program: Sequence[str], config: str, schedule: Schedule = UNSAID) -> list[str]:
    """Crontab lines for a project's settings file. Where the schedule says when fires are due, each takes its slot.

    Paths are absolute, as cron has another working folder and nearly no PATH; a percent sign is escaped, as cron takes
    a bare one for the end of the line. A refused fire (4, 5) is no mail.
    """

    def line(when: str, *words: str) -> str:
        command = shlex.join([*program, *words, "--config", config, "-q"])
        return f"{when} {command}".replace("%", r"\%")

    fire = ("fire", "--scheduled") if schedule.fire else ("fire",)
    return [
        line(schedule.fire or EVERY_FOUR_HOURS, *fire, "--ok", "4,5"),
        line(schedule.sweep or EVERY_QUARTER, "sweep"),
        line(schedule.watchdog or EVERY_HALF_HOUR, "watchdog"),
    ]

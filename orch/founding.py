"""Making a project: its settings from a template, and its queue. Doing it again changes nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from orch import crontab, program
from orch.errors import UsageError
from orch.folders.root import Root
from orch.place import CONFIG_NAME, locate, machine_zone
from orch.queue import Queue
from orch.settings import load

_TEMPLATES = os.path.join(os.path.dirname(__file__), "templates")


@dataclass(slots=True)
class Founded:
    """A project: its folder, its queue, the files that were written and that were there, and its crontab lines."""

    folder: str
    database: str
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    crontab: list[str] = field(default_factory=list)
    warning: str | None = None


def templates() -> list[str]:
    """The names of the templates."""
    return sorted(name for name in os.listdir(_TEMPLATES) if os.path.isdir(os.path.join(_TEMPLATES, name)))


def found(folder: str, *, template: str = "default", database: str | None = None) -> Founded:
    """Make a project in `folder`. Files that are there already are kept, whatever the template says."""
    if template not in templates():
        raise UsageError(f"no template {template!r}: there are {', '.join(templates())}")
    os.makedirs(folder, exist_ok=True)
    config = os.path.join(folder, CONFIG_NAME)
    source = os.path.join(_TEMPLATES, template)
    founded = Founded(folder=folder, database="")
    for name in sorted(os.listdir(source)):
        if name.startswith("__"):
            continue
        target = os.path.join(folder, name)
        if os.path.exists(target):
            founded.kept.append(name)
            continue
        with open(os.path.join(source, name), encoding="utf-8") as file:
            text = file.read()
        with open(target, "x", encoding="utf-8") as file:
            file.write(text.replace("@ZONE@", machine_zone()))
        founded.written.append(name)
    place = locate(database, config)
    os.makedirs(os.path.dirname(place.database), mode=0o700, exist_ok=True)
    Queue.open(place.database, create=True, durability=place.durability).close()
    founded.database = place.database
    project = load(place, remember=True)
    if project.queue_root is not None:
        Root(project.queue_root).prepare()
    founded.crontab = crontab.lines(program.words(), config, project.schedule)
    here = machine_zone()
    if project.schedule.fire is not None and project.zone != here:
        founded.warning = (
            f"cron follows the clock of this machine ({here}) and the schedule that of {project.zone}: let cron start"
            " the fire every quarter of an hour instead; each due time is taken once"
        )
    return founded

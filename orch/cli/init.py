"""``orch init``: a new project in this folder."""

from __future__ import annotations

import os

import click

from orch.cli.talk import Talk, common
from orch.founding import found


@click.command()
@click.option("--template", default="default", show_default=True, help="What to begin with: default, stdlib-audit.")
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@common
@click.pass_obj
def init(talk: Talk, template: str, folder: str) -> None:
    """Make a project in FOLDER (this one if none is named) and print its crontab lines.

    Writes a commented orch.toml and creates the queue; what is there already is kept.
    """
    founded = found(os.path.abspath(folder), template=template, database=talk.database)
    told = [f"wrote {name}" for name in founded.written] + [f"kept {name} as it is" for name in founded.kept]
    told += [f"queue: {founded.database}", "", "for the crontab ('crontab -e'):", "", *founded.crontab]
    talk.line(founded, "\n".join(told))
    if founded.warning:
        talk.say(f"orch: {founded.warning}")

"""``orch prune``: let go of what ended long ago."""

from __future__ import annotations

import click

from orch import clock
from orch.cli.talk import Talk, common
from orch.house import prune as prune_queue
from orch.legible import count
from orch.queue import Queue
from orch.settings import load


@click.command()
@click.option("--older", "age", metavar="TIME", default="30d", show_default=True, help="Ended so long ago: 12h, 30d.")
@click.option("--dry-run", is_flag=True, help="Show what would go; change nothing.")
@common
@click.pass_obj
def prune(talk: Talk, age: str, dry_run: bool) -> None:
    """Let go of tasks that ended long ago, with their history, output and working folders.

    A task that another one waits for stays, and so does one with a key, without its output. So does a worktree that
    holds what is in no commit.
    """
    project = load(talk.place(), remember=not dry_run)
    with Queue.open(project.database, durability=project.durability, by="person") as queue:
        pruned = prune_queue(queue, project, clock.duration(age), dry_run=dry_run)
    for path in pruned.kept:
        talk.say(f"orch: note: {path} stays for what is in no commit; 'git worktree remove --force' lets it go")
    would = "would prune" if dry_run else "pruned"
    talk.line(
        pruned, f"{would} {count(pruned.tasks, 'task')} and {count(pruned.files, 'file')} ({pruned.size:,} bytes)"
    )

"""``orch watchdog``: scream when the fleet is dark."""

from __future__ import annotations

import click

from orch import notify
from orch.cli.talk import Talk, common
from orch.errors import Alarm, OrchError
from orch.settings import load
from orch.watchdog import DARK, watch


@click.command()
@common
@click.pass_obj
def watchdog(talk: Talk) -> int:
    """Look whether the fire that was due has succeeded; exit with 7 while it has not.

    Whatever is wrong with the queue itself is an alarm too. An outage is told of when it begins, from time to time
    while it lasts, and when it is over: on standard error and to the 'alerts' of [watchdog]. With -q nothing else is
    said.
    """
    try:
        project = load(talk.place(), remember=True)
    except OrchError as problem:
        raise Alarm(f"the watchdog cannot see the queue: {problem}") from None

    def tell(state: str, text: str) -> None:
        if state == DARK:
            talk.error("alarm", text, Alarm.exit_code)
        else:
            talk.news(text)

    with talk.beside():
        watched = watch(project, tell)
    talk.show(watched, lambda: talk.views().watched(watched))
    if watched.state == DARK and not (watched.news or talk.quiet):
        tell(DARK, watched.told)
    for sink, error in watched.undelivered:
        talk.error(
            "undelivered", f"the alert could not be sent to {notify.told(sink)}: {error}; it will be tried again", 1
        )
    if watched.trouble:
        talk.error("storage", watched.trouble, 1)
    return watched.exit_code

"""``orch tell``: a word to the decider."""

from __future__ import annotations

import getpass

import click

from orch.cli.talk import Talk, common
from orch.errors import NotFound, UsageError


@click.command()
@click.argument("words", nargs=-1, metavar="[TEXT]")
@click.option("--all", "everything", is_flag=True, help="Without a text: those that were read too.")
@click.option("--take-back", "back", type=int, metavar="ID", help="Take back a text that no decider has read yet.")
@common
@click.pass_obj
def tell(talk: Talk, words: tuple[str, ...], everything: bool, back: int | None) -> None:
    """Leave a text for the decider of the next fire; without one, list what waits.

    Only a decider of your own ([decide] in orch.toml) reads texts. The built-in rule leaves them unread, and the note
    says that they wait.
    """
    text = " ".join(words).strip()
    if text and (everything or back is not None):
        raise UsageError("give either a text, or --all, or --take-back")
    with talk.queue() as queue:
        if back is not None:
            if not queue.mail.mark_read([back], fire=None):
                raise NotFound(f"no unread text {back}: see 'orch tell'")
            talk.line({"id": back}, f"text {back} is taken back")
        elif text:
            id = queue.mail.tell(text, by=_me())
            talk.line({"id": id}, f"text {id} waits for the next decider")
        elif words:
            raise UsageError("the text is empty")
        else:
            found = queue.mail.inbox(everything=everything, limit=100)
            talk.show(found, lambda: talk.views().inbox(found))


def _me() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None

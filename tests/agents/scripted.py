"""An agent for tests: it does what the scope of its DELEGATE says, as Python. It is no model."""

import os
import signal  # noqa: F401
import sys
import time  # noqa: F401

import yaml

ORDER = sys.stdin.read()
with open(os.environ["DELEGATE_PATH"], encoding="utf-8") as file:
    DELEGATE = file.read()
FIELDS = yaml.safe_load(DELEGATE)
ID, ROLE = FIELDS["task_id"], FIELDS["agent"]


def note(name: str) -> None:
    with open(name, "a", encoding="utf-8") as file:
        file.write(f"{ID} {ROLE}\n")


def answer(status: str, output: str = "as asked", **fields: str) -> str:
    lines = ["handoff_type: HANDBACK", f"task_id: {ID}", f"status: {status}", f"output: {output}"]
    return "\n".join(["```yaml", *lines, *(f"{name}: {value}" for name, value in fields.items()), "```", ""])


def say(text: str) -> None:
    print(text, flush=True)


def drop(text: str) -> None:
    with open(os.environ["HANDBACK_PATH"], "w", encoding="utf-8") as file:
        file.write(text)


def asked_again() -> bool:
    return "could not be read" in ORDER


note("worked")
# A judge is told on its command line what to do, as its orders are none of the test's.
exec(sys.argv[1] if len(sys.argv) > 1 else FIELDS["scope"])

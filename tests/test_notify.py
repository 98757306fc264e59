"""Notes on their way to the sinks."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from freezegun import freeze_time

from orch import processes
from orch.errors import UsageError
from orch.notify import Posted, check_sink, deliver
from orch.queue import Queue
from tests.conftest import World


def note(queue: Queue, *sinks: str, quiet: bool = False, body: str = "## Fire 1: naïve ✓\n") -> int:
    fire = queue.ledger.open_fire(processes.myself(), day="2026-11-30")
    with queue.transaction():
        queue.ledger.close_fire(fire, ending="passed", rollup="{}")
        return queue.mail.write_note(fire, title="t", body=body, quiet=quiet, sinks=list(sinks))


def everywhere(queue: Queue, folder: Path) -> list[Posted]:
    """Deliver to every sink that there is a note for."""
    return deliver(queue, str(folder), sinks={delivery.sink for delivery, _ in queue.mail.outbox()})


def test_a_note_reaches_every_sink_once(queue: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note(queue, "file:notes/all.md", "command:sh -c 'cat > got; echo $ORCH_NOTE $ORCH_FIRE >> got'", "stdout")
    assert [posted.error for posted in everywhere(queue, tmp_path)] == [None] * 3
    assert everywhere(queue, tmp_path) == []
    assert (tmp_path / "notes" / "all.md").read_text() == "<!-- note 1 -->\n## Fire 1: naïve ✓\n\n\n"
    assert (tmp_path / "got").read_text() == "## Fire 1: naïve ✓\n1 1\n"
    assert capsys.readouterr().out == "## Fire 1: naïve ✓\n\n"


def test_a_quiet_note_is_stored_and_goes_nowhere(queue: Queue, tmp_path: Path) -> None:
    note(queue, "file:notes.md", quiet=True)
    assert everywhere(queue, tmp_path) == []
    assert len(queue.mail.notes()) == 1


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("command:sh -c 'echo no such list >&2; exit 3'", "exit 3 no such list"),
        ("command:no-such-mailer", "no program 'no-such-mailer'"),
        ("file:/proc/notes.md", "No such file"),
        ("command:unbalanced 'quote", "No closing quotation"),
    ],
)
def test_a_sink_that_fails_keeps_the_note_for_the_next_try_and_holds_no_other_up(
    queue: Queue, tmp_path: Path, sink: str, told: str
) -> None:
    note(queue, sink, "file:notes.md")
    for tries in (1, 2):
        failed = [posted for posted in everywhere(queue, tmp_path) if posted.error]
        assert [posted.sink for posted in failed] == [sink]
        assert told in (failed[0].error or "")
        [(delivery, _)] = queue.mail.outbox()
        assert (delivery.tries, delivery.delivered_at) == (tries, None)
    assert (tmp_path / "notes.md").read_text().count("<!-- note") == 1


def test_a_note_that_was_written_but_not_recorded_is_not_written_again(queue: Queue, tmp_path: Path) -> None:
    note(queue, "file:notes.md")
    [(delivery, _)] = queue.mail.outbox()
    with freeze_time("2026-01-01"):
        queue.mail.try_delivery(delivery, held_for=0)
    (tmp_path / "notes.md").write_text("<!-- note 1 -->\n## Fire 1: naïve ✓\n\n\n")
    assert [posted.error for posted in everywhere(queue, tmp_path)] == [None]
    assert (tmp_path / "notes.md").read_text().count("<!-- note 1 -->") == 1


def test_a_note_that_somebody_is_delivering_is_left_to_them(queue: Queue, tmp_path: Path) -> None:
    note(queue, "file:notes.md")
    [(delivery, _)] = queue.mail.outbox()
    assert queue.mail.try_delivery(delivery, held_for=600) == 1
    assert everywhere(queue, tmp_path) == []
    assert not (tmp_path / "notes.md").exists()


def test_a_sink_that_is_no_more_is_not_tried(queue: Queue, tmp_path: Path) -> None:
    note(queue, "command:no-such-mailer", "file:notes.md")
    assert [posted.sink for posted in deliver(queue, str(tmp_path), sinks=["file:notes.md"])] == ["file:notes.md"]


def test_a_sink_that_fails_is_tried_once_a_round_however_many_notes_wait(queue: Queue, tmp_path: Path) -> None:
    for _ in range(3):
        note(queue, "command:sh -c 'echo >> tried; exit 1'")
    assert len(everywhere(queue, tmp_path)) == 1
    assert (tmp_path / "tried").read_text() == "\n"


def test_a_note_that_fits_in_part_only_is_taken_back(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(queue, "file:notes.md")
    write = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: write(descriptor, data[:10]))
    [posted] = everywhere(queue, tmp_path)
    assert "in part only" in (posted.error or "")
    assert (tmp_path / "notes.md").read_text() == ""


def test_a_fire_has_one_note_and_the_database_refuses_another(queue: Queue) -> None:
    note(queue)
    with pytest.raises(Exception, match="UNIQUE"):
        queue.mail.write_note(1, title="t", body="b", quiet=False, sinks=[])


@pytest.mark.parametrize("sink", ["", "mail:me", "file:", "command: ", "stdin"])
def test_what_is_no_sink_is_refused(sink: str) -> None:
    with pytest.raises(UsageError, match="not a sink"):
        check_sink(sink)


class Service(BaseHTTPRequestHandler):
    """A service that keeps what is posted to it, or refuses it."""

    got: ClassVar[list[dict[str, Any]]] = []
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append(json.loads(body))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing beside what the test prints."""


@pytest.fixture
def service() -> Iterator[str]:
    """Its address as apprise has it, with a password in it."""
    Service.got.clear()
    Service.status = 200
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"apprise:json://me:hush@127.0.0.1:{server.server_port}/notes"
        server.shutdown()


def test_any_service_that_apprise_knows_is_a_sink(queue: Queue, tmp_path: Path, service: str) -> None:
    note(queue, service)
    assert [posted.error for posted in everywhere(queue, tmp_path)] == [None]
    [got] = Service.got
    assert got["message"].startswith("## Fire 1: naïve ✓")


def test_a_service_that_refuses_gets_the_note_again_and_its_address_is_not_shown(world: World, service: str) -> None:
    Service.status = 500
    world.settings(f'[notify]\nsinks = ["{service}"]')
    world.orch("add", "ok")
    said = world.orch("fire") + world.err
    assert "could not be delivered to apprise:json://…:" in said
    Service.status = 200
    said += world.orch("sweep") + world.err
    assert "note 1 to apprise:json://…: delivered" in said
    assert "hush" not in said
    assert len(Service.got) >= 2


def test_a_missing_apprise_is_told_of_with_what_to_install(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    note(queue, "apprise:slack://token")
    [posted] = everywhere(queue, tmp_path)
    assert posted.error == "there is no program 'apprise': install orch with its extra 'notify', or apprise itself"

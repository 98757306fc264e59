"""What an orchestrator does while there is nothing to do."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from orch import clock
from orch.changes import Changes
from orch.folders.root import ENDINGS
from orch.skill.desk import Desk
from orch.skill.polling import PollingConfig
from orch.states import State

# Seconds between looks where the system does not tell of a dropped file.
_LOOK = 0.25


class Idling:
    """The sleep of an orchestrator, and what wakes it: a dropped file, an added task, SIGUSR1, its time."""

    queue_root: Path
    config: PollingConfig
    clean_poll_count: int
    _desk: Desk
    _roused = False

    def run_idle_loop(self) -> dict[str, Any]:
        """Sleep for ``poll_interval_idle``, or deeply after ``idle_threshold_polls`` looks that found nothing.

        ``wake_reason`` is ``normal`` after the one, ``file_event``, ``signal`` or ``timeout`` after the other.
        """
        self._hear_signals()
        if self.clean_poll_count < self.config.idle_threshold_polls:
            clock.sleep(self.config.poll_interval_idle)
            return {"work_processed": 0, "idle_entered": False, "wake_reason": "normal"}
        reason = self._deep_sleep()
        self.clean_poll_count = 0
        return {"work_processed": 0, "idle_entered": True, "wake_reason": reason}

    def _deep_sleep(self) -> str:
        """Sleep until something comes: ``file_event``, ``signal``, or ``timeout`` after ``deep_sleep_sec``."""
        deadline = clock.monotonic() + self._longest_sleep()
        # Watched before it is looked at, so that nothing comes between the two.
        with Changes(self._desk.database, incoming=self._desk.root.folder(State.INCOMING), rouse=True) as changes:
            reason = self._sleep_in(changes, deadline) if changes.is_watching else None
        if changes.caught is not None:
            signal.raise_signal(changes.caught)
        return reason or self._deep_sleep_polling()

    def _sleep_in(self, changes: Changes, deadline: float) -> str:
        while True:
            if changes.roused or self._take_roused():
                return "signal"
            if self._is_waiting():
                return "file_event"
            rest = deadline - clock.monotonic()
            if rest <= 0 or changes.caught is not None:
                return "timeout"
            changes.wait(rest)

    def _deep_sleep_polling(self) -> str:
        """The same where the system does not tell of dropped files: they are looked for."""
        self._hear_signals()
        deadline = clock.monotonic() + self._longest_sleep()
        before = self._dropped()
        if self._is_waiting():
            return "file_event"
        while True:
            if self._take_roused():
                return "signal"
            rest = deadline - clock.monotonic()
            if rest <= 0:
                return "timeout"
            clock.sleep(min(_LOOK, rest))
            if self._dropped() - before or self._is_waiting():
                return "file_event"

    def _dropped(self) -> set[str]:
        folder = Path(self._desk.root.folder(State.INCOMING))
        return {path.name for path in folder.glob("*") if path.suffix in ENDINGS and not path.name.startswith(".")}

    def _is_waiting(self) -> bool:
        """Whether there is anything to do: a file that nobody has looked at, or a task that can be claimed."""
        with self._desk.lock:
            return self._desk.exchange.dropped.is_waiting() or bool(self._desk.queue.ready(limit=1))

    def _longest_sleep(self) -> float:
        """Until the next task is due, and not longer than ``deep_sleep_sec``."""
        with self._desk.lock:
            due = self._desk.queue.next_due()
        if due is None:
            return self.config.deep_sleep_sec
        seconds = (clock.moment(due) - clock.now()).total_seconds()
        return max(0.0, min(self.config.deep_sleep_sec, seconds))

    def _hear_signals(self) -> None:
        """Let SIGUSR1 wake and not kill, now and between two sleeps; a handler of the program's own stays."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGUSR1, self._rouse)

    def _rouse(self, signum: int, frame: FrameType | None) -> None:
        self._roused = True

    def _take_roused(self) -> bool:
        roused, self._roused = self._roused, False
        return roused

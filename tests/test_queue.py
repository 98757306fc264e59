"""The verbs on tasks."""

from __future__ import annotations

import datetime

import pytest
from freezegun import freeze_time

from orch import clock, jsontext
from orch.errors import Conflict, NotFound, UsageError
from orch.limits import Retries
from orch.outcomes import Evidence
from orch.queue import Queue
from orch.records import NewTask, Task
from orch.states import State

NOON = "2026-11-30T12:00:00Z"
STEADY = Retries(jitter=0.0)


def claim_one(queue: Queue, mode: str = "m") -> Task:
    [task] = queue.claim(mode)
    return task


def test_tasks_are_claimed_by_priority_and_then_in_the_order_in_which_they_came(queue: Queue) -> None:
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -3)):
        queue.add("m", {"name": name}, priority=priority)
    assert [task.payload["name"] for task in queue.claim("m", batch=5)] == ["b", "d", "a", "c", "e"]


def test_a_claim_takes_only_its_own_mode(queue: Queue) -> None:
    queue.add("other")
    assert queue.claim("m") == []


def test_a_claimed_task_is_not_claimed_again(queue: Queue) -> None:
    queue.add("m")
    assert len(queue.claim("m", batch=5)) == 1
    assert queue.claim("m") == []


def test_a_batch_can_be_claimed_first_and_started_one_by_one(queue: Queue) -> None:
    queue.add_many([NewTask("m") for _ in range(3)])
    tasks = queue.claim("m", batch=2, start=False)
    assert [queue.task(task.id).state for task in tasks] == ["claimed", "claimed"]
    assert queue.start(tasks[0])
    assert queue.task(tasks[0].id).state == State.PROCESSING
    assert not queue.finish(tasks[1]), "a task that was not started cannot be finished"


def test_finishing_keeps_the_result_and_the_evidence(queue: Queue) -> None:
    id = queue.add("m").id
    assert queue.finish(claim_one(queue), '{"n": 1}', Evidence(exit_code=0, output="output/0/1-1"))
    [attempt] = queue.attempts(id)
    assert (attempt.outcome, attempt.result, attempt.exit_code, attempt.output) == (
        "done",
        '{"n": 1}',
        0,
        "output/0/1-1",
    )


def test_finish_and_claim_ends_one_task_and_begins_the_next(queue: Queue) -> None:
    queue.add_many([NewTask("m"), NewTask("m")])
    first = claim_one(queue)
    kept, second = queue.finish_and_claim(first, "1")
    assert kept
    assert second is not None
    assert (queue.task(first.id).state, queue.task(second.id).state) == ("done", "processing")
    assert queue.finish_and_claim(second) == (True, None)


@pytest.mark.parametrize("late", ["finish", "fail", "crash", "release", "heartbeat", "start"])
def test_an_owner_whose_claim_was_lost_changes_nothing(queue: Queue, late: str) -> None:
    id = queue.add("m").id
    first = claim_one(queue)
    queue.crash(first, "stale")
    queue.recover(queue.task(id), Retries(backoff_base_sec=0))
    second = claim_one(queue)
    before = queue.task(id)
    answers = {
        "finish": lambda: queue.finish(first, '"late"'),
        "fail": lambda: queue.fail(first, "late"),
        "crash": lambda: queue.crash(first, "late"),
        "release": lambda: queue.release(first, "late"),
        "heartbeat": lambda: queue.heartbeat(first),
        "start": lambda: queue.start(first),
    }
    assert answers[late]() is False
    assert queue.task(id) == before
    assert queue.finish(second, '"mine"')
    assert [attempt.result for attempt in queue.attempts(id)] == [None, '"mine"']


def test_a_late_finish_does_not_revive_a_task_that_failed_for_good(queue: Queue) -> None:
    id = queue.add("m").id
    task = claim_one(queue)
    queue.crash(task, "stale")
    queue.recover(queue.task(id), Retries(max_attempts=1))
    assert not queue.finish(task, "1")
    assert queue.task(id).state == State.FAILED


def test_a_failure_ends_the_task_with_its_error(queue: Queue) -> None:
    id = queue.add("m").id
    queue.fail(claim_one(queue), "no such file")
    assert queue.task(id).state == State.FAILED
    assert queue.attempts(id)[0].error == "no such file"


@pytest.mark.parametrize(("limit", "starts"), [(0, 1), (1, 1), (2, 2), (3, 3)])
@pytest.mark.parametrize("way", ["crash", "fail"])
def test_a_task_is_started_as_often_as_the_limit_says_whichever_way_it_fails(
    queue: Queue, limit: int, starts: int, way: str
) -> None:
    retries = Retries(max_attempts=limit, backoff_base_sec=0)
    id = queue.add("m").id
    for start in range(starts):
        task = claim_one(queue)
        assert task.attempts == start + 1
        if way == "crash":
            queue.crash(task, "the worker died")
            queue.recover(queue.task(id), retries)
        else:
            queue.fail(task, "no", retries=retries)
    assert queue.claim("m") == []
    assert (queue.task(id).state, queue.task(id).attempts) == ("failed", starts)


def test_the_backoff_grows_and_counts_from_the_last_sign_of_life(queue: Queue) -> None:
    id = queue.add("m").id
    with freeze_time(NOON) as frozen:
        waits = []
        for _ in range(2):
            task = claim_one(queue)
            frozen.tick(10)
            queue.heartbeat(task)
            beat = clock.now()
            frozen.tick(100)
            queue.crash(task, "the worker died")
            queue.recover(queue.task(id), STEADY)
            due = queue.task(id).due_at
            assert due is not None
            waits.append((clock.moment(due) - beat).total_seconds())
            frozen.tick(3600)
        assert waits == [30.0, 45.0]


def test_what_was_stranded_long_ago_is_claimable_at_once(queue: Queue) -> None:
    with freeze_time("2026-11-30T06:00:00Z"):
        id = queue.add("m").id
        task = claim_one(queue)
    with freeze_time(NOON):
        queue.crash(task, "the worker died")
        queue.recover(queue.task(id), STEADY)
        assert claim_one(queue).id == id


def test_a_delayed_task_is_claimed_when_it_is_due_and_not_before(queue: Queue) -> None:
    with freeze_time(NOON) as frozen:
        queue.add("m", delay=60)
        queue.add("m", at=clock.now() + datetime.timedelta(seconds=30))
        assert queue.claim("m", batch=5) == []
        frozen.tick(30)
        assert len(queue.claim("m", batch=5)) == 1
        frozen.tick(30)
        assert len(queue.claim("m", batch=5)) == 1


def test_a_task_that_says_not_now_waits_and_counts_no_retry(queue: Queue) -> None:
    with freeze_time(NOON) as frozen:
        id = queue.add("m").id
        queue.release(claim_one(queue), "not now", delay=60)
        assert queue.claim("m") == []
        frozen.tick(60)
        task = claim_one(queue)
        assert (task.id, task.attempts, task.retry_count) == (id, 2, 0)


def test_a_task_past_its_time_to_live_fails_as_expired(queue: Queue) -> None:
    with freeze_time(NOON) as frozen:
        id = queue.add("m", ttl=60).id
        kept = queue.add("m", ttl=60).id
        assert claim_one(queue).id == id
        frozen.tick(61)
        assert queue.claim("m") == []
        assert (queue.task(kept).state, queue.task(kept).reason) == ("failed", "expired")
        assert queue.task(id).state == State.PROCESSING, "what has begun does not expire"


def test_the_deadline_is_the_tasks_own_timeout_or_the_modes_and_never_past_the_workers(queue: Queue) -> None:
    with freeze_time(NOON):
        queue.add("m", timeout=5)
        queue.add("m")
        queue.add("m", timeout=1000)
        until = clock.stamp(clock.now() + datetime.timedelta(seconds=60))
        own, mode, cut = queue.claim("m", batch=3, timeout=20, until=until)
        assert own.deadline_at == "2026-11-30T12:00:05.000000Z"
        assert mode.deadline_at == "2026-11-30T12:00:20.000000Z"
        assert cut.deadline_at == until
        assert [queue.task(task.id).deadline_at for task in (own, mode, cut)] == [
            own.deadline_at,
            mode.deadline_at,
            cut.deadline_at,
        ]


# Keys


def test_the_same_key_with_the_same_payload_is_the_same_task(queue: Queue) -> None:
    first = queue.add("m", {"a": 1, "b": [1, 2]}, key="k")
    again = queue.add_many([NewTask("m", '{"b": [1,2], "a": 1}', key="k")])[0]
    assert (again.id, first.new, again.new) == (first.id, True, False)


@pytest.mark.parametrize(("mode", "payload"), [("m", {"a": 2}), ("m", {"a": 1.0}), ("m", {"a": True}), ("n", {"a": 1})])
def test_the_same_key_for_another_task_is_a_conflict(queue: Queue, mode: str, payload: object) -> None:
    queue.add("m", {"a": 1}, key="k")
    with pytest.raises(Conflict, match="another"):
        queue.add(mode, payload, key="k")
    assert len(queue.tasks()) == 1


def test_a_conflict_in_the_middle_of_many_adds_none_of_them(queue: Queue) -> None:
    queue.add("m", key="k")
    with pytest.raises(Conflict):
        queue.add_many([NewTask("m"), NewTask("m", '{"other": 1}', key="k"), NewTask("m")])
    assert len(queue.tasks()) == 1


def test_many_tasks_get_their_own_payloads_in_order(queue: Queue) -> None:
    queue.add("m")
    added = queue.add_many([NewTask("m", f'{{"i":{i}}}', key="k" if i == 2 else None) for i in range(5)])
    assert [queue.task(one.id).payload for one in added] == [{"i": i} for i in range(5)]


# Dependencies


def test_a_task_waits_until_every_task_that_it_names_is_done(queue: Queue) -> None:
    one = queue.add("m", key="one").id
    two = queue.add("m").id
    last = queue.add("m", after=["one", two]).id
    tasks = queue.claim("m", batch=5)
    assert [task.id for task in tasks] == [one, two]
    queue.finish(tasks[0])
    assert queue.claim("m") == []
    queue.finish(tasks[1])
    assert claim_one(queue).id == last


def test_a_task_may_wait_for_a_key_that_comes_later(queue: Queue) -> None:
    waiting = queue.add("m", after=["later"]).id
    assert queue.claim("m") == []
    assert queue.stuck() == [(waiting, "later", None, None)]
    queue.add("m", key="later")
    queue.finish(claim_one(queue))
    assert claim_one(queue).id == waiting


def test_a_failed_task_leaves_its_dependents_waiting_until_it_is_done_after_all(queue: Queue) -> None:
    first = queue.add("m").id
    second = queue.add("m", after=[first]).id
    queue.fail(claim_one(queue), "no")
    assert queue.claim("m") == []
    assert queue.stuck() == [(second, str(first), first, "failed")]
    queue.requeue(first)
    queue.finish(claim_one(queue))
    assert claim_one(queue).id == second


def test_a_task_that_is_done_twice_frees_its_dependents_once(queue: Queue) -> None:
    first, other = queue.add("m").id, queue.add("n").id
    second = queue.add("m", after=[first, other]).id
    queue.finish(claim_one(queue))
    queue.requeue(first)
    queue.finish(claim_one(queue))
    assert queue.task(second).blocked == 1
    queue.finish(claim_one(queue, "n"))
    assert claim_one(queue).id == second


def test_a_done_task_is_nothing_to_wait_for(queue: Queue) -> None:
    first = queue.add("m").id
    queue.finish(claim_one(queue))
    assert queue.add("m", after=[first]).id == claim_one(queue).id


def test_one_task_named_by_key_and_by_id_is_waited_for_once(queue: Queue) -> None:
    first = queue.add("m", key="k").id
    queue.add("m", after=["k", first])
    queue.finish(claim_one(queue))
    assert claim_one(queue).blocked == 0


# Values


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 9223372036854775808, "u": 18446744073709551615}',
        '{"x": 0.1000000000000000055511151231257827, "y": 1e400}',
        '{"text": "naïve → ✓ 日本 \\u0000 [red]:x:"}',
        "[]",
        "null",
    ],
)
def test_a_payload_is_kept_exactly_as_it_was_written(queue: Queue, text: str) -> None:
    queue.add_many([NewTask("m", jsontext.checked(text))])
    assert claim_one(queue).payload_text == text


def test_big_integers_reach_the_task_unchanged(queue: Queue) -> None:
    payload = {"id": 2**63, "u": 2**64 - 1, "n": -(2**200)}
    queue.add("m", payload)
    assert claim_one(queue).payload == payload


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1, 2}, b"\xff", datetime.datetime(2026, 1, 1), object()]
)
def test_what_json_cannot_hold_is_refused_before_anything_is_stored(queue: Queue, value: object) -> None:
    with pytest.raises(UsageError):
        queue.add("m", {"x": value})
    assert queue.tasks() == []


def test_half_a_surrogate_pair_survives(queue: Queue) -> None:
    queue.add("m", {"x": "\ud800"})
    assert claim_one(queue).payload == {"x": "\ud800"}


@pytest.mark.parametrize("mode", ["", "-x", "*", "a\nb", " a", "x" * 201])
def test_a_mode_with_an_impossible_name_is_refused(queue: Queue, mode: str) -> None:
    with pytest.raises(UsageError):
        queue.add(mode)


@pytest.mark.parametrize(
    "bad",
    [{"priority": 101}, {"priority": -101}, {"timeout": 0}, {"timeout": -1}, {"key": ""}, {"key": "k", "after": ["k"]}],
)
def test_a_task_that_makes_no_sense_is_refused(queue: Queue, bad: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        queue.add("m", **bad)  # type: ignore[arg-type]


# What a person does


def test_requeue_makes_an_ended_task_claimable_with_fresh_retries(queue: Queue) -> None:
    id = queue.add("m").id
    queue.fail(claim_one(queue), "no", retries=Retries(backoff_base_sec=0))
    queue.fail(claim_one(queue), "no")
    queue.requeue(id)
    task = claim_one(queue)
    assert (task.attempts, task.retry_count) == (3, 0)
    queue.asks.keep_answer(id, "{}")
    with pytest.raises(Conflict, match="processing"):
        queue.requeue(id)
    # Refused, it has changed nothing.
    assert queue.asks.kept_answer(id) == "{}"


def test_cancel_ends_what_has_not_ended_and_nothing_else(queue: Queue) -> None:
    waiting, running = queue.add("m").id, queue.add("n").id
    task = claim_one(queue, "n")
    assert queue.cancel(waiting)[1] is False
    assert queue.cancel(running)[1] is True
    assert queue.task(running).reason == "cancelled"
    assert not queue.finish(task), "the late answer of a cancelled task changes nothing"
    with pytest.raises(Conflict):
        queue.cancel(running)


def test_nothing_is_claimed_from_a_paused_mode(queue: Queue) -> None:
    queue.add("m")
    queue.add("n")
    queue.pause("m", "upstream is down")
    assert queue.claim("m") == []
    assert len(queue.claim("n")) == 1
    assert queue.resume("m") == ["m"]
    assert len(queue.claim("m")) == 1


def test_a_pause_of_everything_holds_every_mode(queue: Queue) -> None:
    queue.add("m")
    queue.pause("*")
    assert queue.claim("m") == []
    queue.resume("*")
    assert len(queue.claim("m")) == 1


def test_a_task_is_found_by_key_or_by_id(queue: Queue) -> None:
    id = queue.add("m", key="the key").id
    assert queue.find("the key").id == queue.find(str(id)).id == id
    with pytest.raises(NotFound):
        queue.find("another")
    with pytest.raises(NotFound):
        queue.task(2**70)


# Looking


def test_the_backlog_counts_each_kind_of_waiting(queue: Queue) -> None:
    queue.add_many([NewTask("m", priority=i) for i in range(3)])
    queue.add("m", delay=60)
    first = queue.add("m", key="x", priority=9).id
    queue.add("m", after=[first])
    task = claim_one(queue)
    [backlog] = queue.backlog()
    assert (backlog.ready, backlog.delayed, backlog.blocked, backlog.running) == (3, 1, 1, 1)
    assert backlog.top_priority == 2
    queue.crash(task, "gone")
    [backlog] = queue.backlog()
    assert (backlog.running, backlog.crashed) == (0, 1)


def test_totals_are_the_same_before_and_after_they_are_noted_down(queue: Queue) -> None:
    for _ in range(4):
        queue.add("m")
    queue.finish(claim_one(queue))
    queue.fail(claim_one(queue), "no")
    assert queue.totals() == {"m": {State.DONE: 1, State.FAILED: 1}}
    queue.store_totals()
    queue.finish(claim_one(queue))
    queue.requeue(1)
    assert queue.totals() == {"m": {State.DONE: 1, State.FAILED: 1}}
    queue.store_totals()
    queue.store_totals()
    assert queue.totals() == {"m": {State.DONE: 1, State.FAILED: 1}}


def test_the_view_of_the_plain_work_table_has_its_columns_and_words(queue: Queue) -> None:
    queue.add_many([NewTask("m", f'{{"i":{i}}}') for i in range(4)])
    done, failed, running = queue.claim("m", batch=3)
    queue.finish(done)
    queue.fail(failed, "no")
    cursor = queue.database._connection.execute("select * from task_queue order by id")  # type: ignore[attr-defined]
    assert [column[0] for column in cursor.description] == [
        "id", "mode", "status", "payload", "claimed_by", "claimed_at", "attempts", "created_at", "updated_at",
    ]  # fmt: skip
    assert [row[2] for row in cursor] == ["done", "failed", "in_progress", "queued"]
    assert running.id == 3


def test_lists_can_be_asked_for_by_state_mode_and_page(queue: Queue) -> None:
    queue.add_many([NewTask("m" if i % 2 else "n") for i in range(10)])
    queue.fail(claim_one(queue), "no")
    assert [task.id for task in queue.tasks(limit=3)] == [10, 9, 8]
    assert [task.id for task in queue.tasks(limit=2, before=8, mode="n")] == [7, 5]
    assert [task.id for task in queue.tasks(states=[State.FAILED])] == [2]
    assert len(queue.tasks(states=[State.FAILED, State.INCOMING])) == 10

"""Where a project is found, what its settings mean, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from orch import settings_schema
from orch.errors import NotFound, UsageError
from orch.founding import found, templates
from orch.limits import Limits
from orch.place import locate, machine_zone
from orch.project import Schedule
from orch.settings import load
from tests.conftest import World


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_CONFIG", "ORCH_DB", "ORCH_MAX_POOL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def write(folder: Path, text: str) -> None:
    (folder / "orch.toml").write_text(text)


def test_the_project_is_found_from_a_folder_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "")
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    place = locate()
    assert (place.folder, place.database) == (str(tmp_path), str(tmp_path / ".orch" / "orch.db"))


def test_flags_beat_the_environment_and_the_environment_beats_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "[limits]\nmax_pool = 3\n[queue]\ndatabase = 'file.db'")
    assert load(locate()).limits.max_pool == 3
    assert locate().database == str(tmp_path / "file.db")
    monkeypatch.setenv("ORCH_MAX_POOL", "4")
    monkeypatch.setenv("ORCH_DB", "environment.db")
    assert load(locate()).limits.max_pool == 4
    assert locate().database == str(tmp_path / "environment.db")
    assert load(locate(), {"max_pool": 5, "task_cap": None}).limits.max_pool == 5
    assert locate("flag.db").database == str(tmp_path / "flag.db")


def test_without_any_setting_the_defaults_of_the_record_hold(tmp_path: Path) -> None:
    write(tmp_path, "")
    project = load(locate())
    assert project.limits == Limits()
    assert project.zone == machine_zone()
    assert project.sinks == [f"file:{tmp_path}/.orch/notes.md"]


def test_a_queue_beside_no_project_has_its_own_state_folder(tmp_path: Path) -> None:
    place = locate("some/q.db")
    assert (place.folder, place.state) == (str(tmp_path / "some"), str(tmp_path / "some" / "q.db.files"))


def test_nothing_to_go_by_says_what_to_do() -> None:
    with pytest.raises(NotFound, match="orch init"):
        locate()
    with pytest.raises(NotFound, match=r"missing\.toml"):
        locate(config="missing.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[limits]\nmax_pol = 3", "limits.max_pol: there is no such setting"),
        ("[limits]\nmax_pool = 0", "limits.max_pool"),
        ("[limits]\nwall_clock_minutes = nan", "limits.wall_clock_minutes"),
        ("[modes.x]\ntimeout = 5", "modes.x: give it either 'function' or 'command'"),
        ("[modes.x]\nfunction = 'a:b'\ncommand = ['c']", "modes.x"),
        ("[modes.x]\ncommand = 'rm -rf /'", "modes.x.command: write a list"),
        ("[modes.x]\nfunction = 'nocolon'", "modes.x.function"),
        ("[modes.run]\ncommand = ['x']", "modes.run: it is built in"),
        ("[modes.'*']\nfunction = 'a:b'", "every mode"),
        ("[notify]\nsinks = ['mail:me']", "'mail:me' is not a sink"),
        ("zone = 'Mars/Base'", "Mars/Base"),
        ("zone = [", "not valid TOML"),
        ("[orchestrator]\nretry_max_attempts = -1", "orchestrator.retry_max_attempts"),
        ("[schedule]\nfire = 'now and then'", "schedule.fire: 'now and then' is not a cron expression"),
        ("[agents.run]\ncommand = ['x']", "agents.run: a mode of that name is built in"),
        ("[agents.engineer]\ncommand = ['x', '{modle}']", "agents.engineer.command: there is no {modle} within a word"),
        ("[agents.engineer]\ncommand = ['x', 'a={flags}']", "there is no {flags} within a word"),
        ("[schedule]\nfires = '0 * * * *'", "schedule.fires: there is no such setting"),
        ("[decide]\ntimeout = 5", "decide: give it either 'function' or 'command'"),
        ("[decide]\ncommand = []", "decide.command"),
        ("[watchdog]\nalerts = ['mail:me']", "'mail:me' is not a sink"),
        ("[limits]\nunknown_cost = 'panic'", "limits.unknown_cost"),
        ("[limits]\ndaily_cost_usd = -1", "limits.daily_cost_usd"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file_and_key(tmp_path: Path, text: str, told: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(locate())
    assert told in str(caught.value)


@pytest.mark.parametrize("value", ["x", "-1", "inf", ""])
def test_a_wrong_limit_in_the_environment_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    write(tmp_path, "")
    monkeypatch.setenv("ORCH_MAX_POOL", value)
    with pytest.raises(UsageError, match="ORCH_MAX_POOL"):
        load(locate())


@pytest.mark.parametrize("template", templates())
def test_every_template_is_a_project_whose_settings_are_valid(tmp_path: Path, template: str) -> None:
    founded = found(str(tmp_path), template=template)
    assert "orch.toml" in founded.written
    project = load(locate())
    assert (tmp_path / ".orch").stat().st_mode & 0o777 == 0o700
    assert Path(project.database).exists()


def test_the_commented_defaults_of_the_template_are_the_real_ones(tmp_path: Path) -> None:
    found(str(tmp_path))
    text = (tmp_path / "orch.toml").read_text()
    head, _, _ = text.partition("# One table a kind of work")
    uncommented = "\n".join(
        line.removeprefix("# ") if line.startswith("# ") and " = " in line else line for line in head.splitlines()
    )
    write(tmp_path, uncommented)
    project = load(locate())
    write(tmp_path, "")
    plain = load(locate())
    assert project.limits == plain.limits
    assert project.guard == plain.guard
    assert project.schedule == Schedule("0 */4 * * *", "*/15 * * * *", "*/30 * * * *")


def test_a_schedule_that_cron_does_not_follow_is_warned_of(tmp_path: Path) -> None:
    write(tmp_path, 'zone = "Pacific/Chatham"\n[schedule]\nfire = "0 0 * * *"')
    assert "each due time is taken once" in (found(str(tmp_path)).warning or "")
    write(tmp_path, f'zone = "{machine_zone()}"\n[schedule]\nfire = "0 0 * * *"')
    assert found(str(tmp_path)).warning is None


def test_founding_again_keeps_what_is_there(tmp_path: Path) -> None:
    write(tmp_path, "# mine")
    assert found(str(tmp_path)).kept == ["orch.toml"]
    assert found(str(tmp_path)).written == []
    assert (tmp_path / "orch.toml").read_text() == "# mine"
    with pytest.raises(UsageError, match="stdlib-audit"):
        found(str(tmp_path), template="none")


# A check is remembered, as long as nothing has changed


def test_a_remembered_check_is_the_same_project_and_needs_no_second_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "[limits]\ntask_cap = 3\ndaily_cost_usd = 2.5\n[modes.m]\ncommand = ['true', '{x}']\n"
        "[decide]\ncommand = ['./d']\n[watchdog]\nalerts = ['stdout']\n[notify]\nsinks = ['stdout']\n"
    )
    write(tmp_path, text)
    found(str(tmp_path))
    checked = load(locate())
    assert (tmp_path / ".orch" / "settings.json").stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(settings_schema, "check", None)
    assert load(locate()) == checked
    assert checked.modes["m"].command == ("true", "{x}")


def test_a_changed_file_a_changed_rule_and_a_damaged_memory_are_checked_again(tmp_path: Path) -> None:
    write(tmp_path, "[limits]\ntask_cap = 3")
    found(str(tmp_path))
    memory = tmp_path / ".orch" / "settings.json"
    kept = memory.read_text()
    write(tmp_path, "[limits]\ntask_cap = 4")
    assert load(locate()).limits.task_cap == 4
    write(tmp_path, "[limits]\ntask_cap = 0")
    with pytest.raises(UsageError, match=r"limits\.task_cap"):
        load(locate())
    write(tmp_path, "[limits]\ntask_cap = 3")
    for junk in ("", "{}", "[]", "null", kept.replace('"modes"', '"moods"'), kept[:-5]):
        memory.write_text(junk)
        assert load(locate()).limits.task_cap == 3
    memory.write_text(kept.replace('"0.1.0"', '"0.0.9"').replace('"task_cap": 3}', '"task_cap": 99}'))
    assert load(locate()).limits.task_cap == 3, "another version's rules are not these"


def test_looking_remembers_nothing(tmp_path: Path) -> None:
    write(tmp_path, "")
    (tmp_path / ".orch").mkdir()
    load(locate())
    assert list((tmp_path / ".orch").iterdir()) == []


def test_functions_are_imported_from_the_named_folders_too_and_after_our_own_modules(world: World) -> None:
    (world.folder / "lib").mkdir()
    (world.folder / "lib" / "helper.py").write_text(
        "def twice(task):\n    import click, json; return [2, click.__file__]\n"
    )
    (world.folder / "lib" / "click.py").write_text("raise RuntimeError('this is not click')")
    rest = (world.folder / "orch.toml").read_text()
    (world.folder / "orch.toml").write_text(
        f'python_path = ["lib"]\n{rest}\n[modes.twice]\nfunction = "helper:twice"\n'
    )
    world.orch("add", "twice")
    world.orch("fire")
    [attempt] = world.queue.attempts(1)
    assert attempt.error is None
    assert str(attempt.result).startswith("[2,")


def test_a_folder_to_import_from_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    write(tmp_path, 'python_path = ["none"]')
    with pytest.raises(UsageError, match=r"python_path: there is no folder .*none"):
        load(locate())

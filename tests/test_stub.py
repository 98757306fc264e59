"""The script in front of the binary: it unpacks once, whole or not at all, and becomes the program."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

import orch
from tests.conftest import LIMIT, eventually

SCRIPTS = Path(orch.__file__).parent.parent / "scripts"
PROGRAM = """#!/bin/sh
if [ "$1" = --version ]; then echo one; exit; fi
if [ "$1" = exit ]; then exit "$2"; fi
printf '%s\\n' "$$" "$ORCH_PROGRAM" "$(umask)" "$@"
"""
BARE = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The script that builds the binary, as a module."""
    loader = SourceFileLoader("build_binary", str(SCRIPTS / "binary"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class Made:
    """A binary whose program is a shell script, and the folder that it unpacks to."""

    def __init__(self, build: ModuleType, folder: Path, program: str = PROGRAM) -> None:
        content = folder / "content"
        (content / "lib").mkdir(parents=True)
        (content / "orch").write_text(program + f"# {folder}\n")
        (content / "orch").chmod(0o755)
        (content / "lib" / "data").write_bytes(os.urandom(100_000))
        self.path = folder / "100% mine" / "orch"
        self.home = folder / "home"
        self.home.mkdir()
        build.write(self.path, build.pack(content), 123_456_789)
        self.cache = self.home / ".cache" / "orch"

    def __call__(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        said = {**BARE, "HOME": str(self.home), **env}
        return subprocess.run([self.path, *words], env=said, capture_output=True, text=True, timeout=60)

    @property
    def unpacked(self) -> list[Path]:
        return sorted(self.cache.iterdir())


@pytest.fixture
def made(build: ModuleType, tmp_path: Path) -> Iterator[Made]:
    made = Made(build, tmp_path)
    yield made
    # Where it goes without a home.
    for top in Path("/var/tmp").glob(f"orch-{os.getuid()}"):
        for path in top.glob("*/orch"):
            if str(tmp_path) in path.read_text(errors="replace"):
                shutil.rmtree(path.parent)


def test_it_unpacks_once_and_becomes_the_program_with_the_words_as_they_were(made: Made) -> None:
    words = ["a b", "*", "$HOME", "it's", "", "-n"]
    process = subprocess.Popen(
        [made.path, *words], env={**BARE, "HOME": str(made.home)}, stdout=subprocess.PIPE, text=True, umask=0o027
    )
    said, _ = process.communicate(timeout=60)
    assert said.splitlines() == [str(process.pid), str(made.path), "0027", *words]
    [folder] = made.unpacked
    assert folder.name.startswith(f"orch-{orch.__version__}-")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o022 == 0 for path in folder.rglob("*"))
    data = (folder / "lib" / "data").stat()
    assert made("exit", "7").returncode == 7
    assert made("exit", "0").stderr == ""
    assert (folder / "lib" / "data").stat().st_ino == data.st_ino, "it was unpacked again"


def test_a_relative_path_and_a_link_lead_to_the_same_program(made: Made) -> None:
    (made.home / "link").symlink_to(made.path)
    for words, cwd in ((["./orch"], made.path.parent), (["./link"], made.home), (["sh", "orch"], made.path.parent)):
        ran = subprocess.run(
            words, cwd=cwd, env={**BARE, "HOME": str(made.home)}, capture_output=True, text=True, timeout=60
        )
        program = ran.stdout.splitlines()[1]
        assert os.path.isabs(program)
        assert os.path.samefile(program, made.path)
    assert len(made.unpacked) == 1


@pytest.mark.parametrize("home", ["", "/dev/null", "/proc/nowhere", "relative"])
def test_without_a_home_that_can_be_written_it_goes_elsewhere(made: Made, home: str) -> None:
    ran = made("here", HOME=home)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1] == "here"


def test_the_folder_can_be_named(made: Made, tmp_path: Path) -> None:
    assert made("x", ORCH_CACHE_DIR=str(tmp_path / "there")).returncode == 0
    assert len(list((tmp_path / "there").iterdir())) == 1
    assert made("x", XDG_CACHE_HOME=str(tmp_path / "xdg")).returncode == 0
    assert len(list((tmp_path / "xdg" / "orch").iterdir())) == 1
    assert not made.cache.exists()


def test_twelve_first_starts_at_once_all_succeed_and_leave_one_folder(made: Made) -> None:
    with ThreadPoolExecutor(12) as threads:
        ran = list(threads.map(lambda number: made(str(number)), range(12)))
    assert [one.stdout.splitlines()[-1] for one in ran] == [str(number) for number in range(12)]
    assert len(made.unpacked) == 1


def test_what_a_killed_unpacking_left_is_removed_and_what_another_one_does_is_left_alone(made: Made) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    host = os.uname().nodename
    left, busy, far = (made.cache / f".new-{name}" for name in (f"{host}-{ended.pid}", f"{host}-{os.getpid()}", "x-1"))
    for folder in (left, busy, far):
        folder.mkdir(parents=True)
        (folder / "part").touch()
    assert made("x").returncode == 0
    assert not left.exists()
    assert busy.exists()
    assert far.exists()


def test_an_unpacking_goes_on_undisturbed_when_only_the_program_that_began_it_is_ended(
    build: ModuleType, tmp_path: Path
) -> None:
    wait = f'[ "$1" != --version ] || while [ ! -e "{tmp_path}/go" ]; do sleep 0.01; done\n'
    made = Made(build, tmp_path, PROGRAM.replace("\n", f"\n{wait}", 1))
    env = {**BARE, "HOME": str(made.home)}
    first = subprocess.Popen([made.path, "1"], env=env)
    eventually(lambda: len(list(made.cache.glob(".new-*/orch"))) == 1, "the unpacking")
    first.terminate()
    first.wait()
    with subprocess.Popen([made.path, "2"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as next:
        try:
            eventually(lambda: len(list(made.cache.glob(".new-*"))) == 2, "the next unpacking beside it")
        finally:
            (tmp_path / "go").touch()
        said, err = next.communicate(timeout=LIMIT)
    assert (said.splitlines()[-1], err) == ("2", "")
    eventually(lambda: len(made.unpacked) == 1, "the end of both")
    assert (made.unpacked[0] / "lib" / "data").exists()


def test_a_damaged_file_and_nowhere_to_go_are_told_of_with_73(made: Made) -> None:
    whole = made.path.read_bytes()
    # A place of as many letters where nobody can write.
    made.path.write_bytes(whole.replace(b"/var/tmp", b"/proc/no")[:-5000])
    ran = made("x", TMPDIR="/proc/no")
    assert (ran.returncode, ran.stdout) == (73, "")
    assert "ORCH_CACHE_DIR" in ran.stderr
    assert f"{made.cache}: unpacking failed: is there room for 123 MB, and is {made.path} whole?" in ran.stderr
    assert "/proc/no/orch-" in ran.stderr
    assert made.unpacked == []


def test_without_any_program_to_unpack_by_it_is_one_message_and_afterwards_none_is_needed(made: Made) -> None:
    ran = made("x", PATH="/nowhere", TMPDIR="/proc/no")
    assert (ran.returncode, ran.stdout) == (73, "")
    assert ran.stderr.startswith("orch: it can be unpacked nowhere")
    assert made("exit", "0").returncode == 0
    assert made("exit", "7", PATH="/nowhere").returncode == 7


def test_a_program_that_cannot_run_there_is_not_left_there(build: ModuleType, tmp_path: Path) -> None:
    made = Made(build, tmp_path, "#!/bin/sh\necho needs a newer system >&2\nexit 1\n")
    made.path.write_bytes(made.path.read_bytes().replace(b"/var/tmp", b"/proc/no"))
    ran = made("x", TMPDIR="/proc/no")
    assert ran.returncode == 73
    assert "cannot be run (needs a newer system)" in ran.stderr
    assert made.unpacked == []


def test_a_folder_that_leads_elsewhere_is_not_trusted(made: Made, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert made("x", ORCH_CACHE_DIR=str(tmp_path / "link")).returncode == 0
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert len(made.unpacked) == 1


def test_a_program_that_somebody_else_may_have_put_there_is_not_started(made: Made, tmp_path: Path) -> None:
    made("x")
    [folder] = made.unpacked
    (tmp_path / "link").symlink_to(made.cache)
    within = tmp_path / "within"
    within.mkdir()
    (within / folder.name).symlink_to(folder)
    for cache in (tmp_path / "link", within):
        (folder / "orch").write_text("#!/bin/sh\necho strange\n")
        ran = made("x", ORCH_CACHE_DIR=str(cache), HOME=str(tmp_path / cache.name / "home"))
        assert ran.stdout.splitlines()[-1] == "x"


def test_what_clears_temporary_folders_leaves_its_seldom_read_files_alone(made: Made, tmp_path: Path) -> None:
    made("x")
    files = [path for path in made.cache.rglob("*") if path.is_file()]
    assert files
    assert all(path.stat().st_mode & stat.S_ISVTX for path in files)
    if program := shutil.which("systemd-tmpfiles"):
        for path in files:
            os.utime(path, (0, 0))
        settings = tmp_path / "cleaned.conf"
        settings.write_text(f"d {made.cache} - - - am:1s\n")
        subprocess.run([program, "--clean", settings], check=False, timeout=LIMIT)
        assert [path for path in made.cache.rglob("*") if path.is_file()] == files


def test_another_version_goes_when_nobody_has_started_it_for_a_month_and_nobody_runs_it(made: Made) -> None:
    month_ago = time.time() - 40 * 86_400
    running, unused, recent = (made.cache / f"orch-0.0.{number}-x" / "orch" for number in range(3))
    for program in (running, unused, recent):
        program.parent.mkdir(parents=True)
        shutil.copy(shutil.which("sleep") or "", program)
    process = subprocess.Popen([running, "1000"])
    try:
        for program in (running, unused):
            os.utime(program, (month_ago, month_ago))
        assert made("x").returncode == 0
        assert running.exists()
        assert recent.exists()
        assert not unused.parent.exists()
        assert len(made.unpacked) == 3
    finally:
        process.kill()
        process.wait()

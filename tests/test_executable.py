"""The file that `make executable` builds: where it unpacks itself, and what it runs.

Most tests pack a small script instead of the program, because the program takes a minute to build.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Prints its own path, its arguments and stdin, or sleeps.
SCRIPT = """#!/bin/sh
case "$1" in --version) exit 0 ;; sleep) echo "$0"; exec sleep 60 ;; esac
echo "$0"; echo "$#" "$@"; cat; exit 5
"""
NOBODY = 65534

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.linux


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other users can enter, and that is not below /dev/shm, which a test hides."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield open_to_all(Path(directory))


def open_to_all(path: Path) -> Path:
    for directory in (path, *path.parents):
        if directory.stat().st_mode & 0o005 != 0o005:
            directory.chmod(0o755)
    return path


@pytest.fixture
def executable(place: Path) -> Path:
    return pack(place, SCRIPT)


def pack(place: Path, script: str) -> Path:
    """Pack a script as if it were the program of version 1.2.3."""
    program = place / "program" / "pulsar-meta"
    program.parent.mkdir(exist_ok=True)
    program.write_text(script)
    program.chmod(0o755)
    packed = place / "packed"
    command = ["sh", str(ROOT / "scripts" / "executable_pack.sh"), str(program.parent), "1.2.3", str(packed)]
    subprocess.run(command, check=True)
    return packed


def run(
    program: Path, *arguments: str, user: int | None = None, **environment: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        env={name: str(value) for name, value in environment.items()},
        input="input",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )


def started(done: subprocess.CompletedProcess[str]) -> Path:
    """The path of the program that was run."""
    assert done.stderr == ""
    return Path(done.stdout.splitlines()[0])


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")


def test_the_first_start_unpacks_the_program_into_a_private_cache(executable: Path, place: Path) -> None:
    first = run(executable, "a b", "*", HOME=place, TMPDIR=place / "none")
    program = started(first)
    assert (first.stdout, first.returncode) == (f"{program}\n2 a b *\ninput", 5)
    assert program.is_relative_to(place / ".cache" / "pulsar-meta")
    assert program.parent.name.startswith("1.2.3-")
    assert [path.stat().st_mode & 0o777 for path in (program, *program.parents[:3])] == [0o700] * 4
    assert list(program.parents[1].iterdir()) == [program.parent]
    before = program.stat()
    assert started(run(executable, HOME=place)) == program
    assert program.stat() == before


def test_each_build_has_its_own_directory(executable: Path, place: Path) -> None:
    first = started(run(executable, HOME=place))
    other = started(run(pack(place, SCRIPT + "#\n"), HOME=place))
    assert first.parent != other.parent
    assert first.exists()


def test_two_first_starts_at_once_run_the_same_program(executable: Path, place: Path) -> None:
    processes = [
        subprocess.Popen(
            [executable], env={"HOME": str(place)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        for _ in range(6)
    ]
    programs = {process.communicate(timeout=60)[0] for process in processes}
    assert len(programs) == 1
    assert len(list((place / ".cache" / "pulsar-meta").iterdir())) == 1


def test_a_cache_that_others_can_write_to_is_not_used(executable: Path, place: Path) -> None:
    (place / "shared" / "pulsar-meta").mkdir(parents=True)
    (place / "shared" / "pulsar-meta").chmod(0o770)
    program = started(run(executable, XDG_CACHE_HOME=place / "shared", TMPDIR=place))
    assert program.parents[2] == place
    assert list((place / "shared" / "pulsar-meta").iterdir()) == []


def test_a_link_is_not_used_as_cache(executable: Path, place: Path) -> None:
    (place / "elsewhere").mkdir(mode=0o700)
    (place / "pulsar-meta").symlink_to(place / "elsewhere")
    (place / "tmp").mkdir()
    program = started(run(executable, XDG_CACHE_HOME=place, TMPDIR=place / "tmp"))
    assert program.is_relative_to(place / "tmp")


@pytest.mark.parametrize(("owner", "user"), [(NOBODY, None), (0, NOBODY), (NOBODY - 1, NOBODY)])
def test_the_cache_of_another_user_is_never_run(
    owner: int, user: int | None, executable: Path, place: Path
) -> None:
    """Root doesn't run a user's cache, and a user doesn't run root's or another user's."""
    needs_root()
    home = place / "home"
    home.mkdir()
    os.chown(home, owner, owner)
    planted = started(run(executable, user=owner, HOME=home))
    assert planted.is_relative_to(home)
    planted.write_text("#!/bin/sh\necho planted\n")
    for path in (planted, *planted.parents[:3]):
        path.chmod(0o755)
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o1777)
    program = started(run(executable, user=user, HOME=home, TMPDIR=place / "tmp"))
    assert program.is_relative_to(place / "tmp")


def test_an_empty_environment_uses_the_home_directory_of_the_user(executable: Path) -> None:
    done = run(executable)
    program = started(done)
    try:
        assert program.is_relative_to(Path.home() / ".cache") or program.is_relative_to("/tmp")
    finally:
        if program.parents[1].name == "pulsar-meta":
            shutil.rmtree(program.parent)


def test_a_user_without_a_home_directory_gets_a_temporary_one(executable: Path, place: Path) -> None:
    needs_root()
    for environment in ({}, {"HOME": Path("/nonexistent")}):
        done = run(executable, "x", user=NOBODY, **environment)
        program = started(done)
        assert program.is_relative_to("/tmp")
        assert (done.stdout.splitlines()[1:], done.returncode) == (["1 x", "input"], 5)
        assert_goes_away(program)


def assert_goes_away(program: Path) -> None:
    deadline = time.monotonic() + 20
    while program.parents[1].exists():
        assert time.monotonic() < deadline, f"{program.parents[1]} was not removed"
        time.sleep(0.05)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_temporary_directory_goes_away_however_the_program_ends(
    sent: signal.Signals, executable: Path, place: Path
) -> None:
    (place / "tmp").mkdir()
    process = subprocess.Popen(
        [executable, "sleep"],
        env={"TMPDIR": str(place / "tmp"), "XDG_CACHE_HOME": "/proc/none"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        program = Path(process.stdout.readline().strip())
        assert program.is_relative_to(place / "tmp")
        # A terminal sends Ctrl-C to all processes of the group.
        (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
        assert process.wait(timeout=20) == -sent
    assert_goes_away(program)


def test_a_damaged_file_is_not_run(executable: Path, place: Path) -> None:
    whole = executable.read_bytes()
    for damaged in (whole[:-10], whole[:-10] + bytes(10)):
        executable.write_bytes(damaged)
        done = run(executable, HOME=place)
        assert (done.returncode, done.stdout) == (6, "")
        assert done.stderr == f"pulsar-meta: {executable} is damaged; copy it again\n"
    assert not (place / ".cache").exists()


def test_a_program_that_the_system_cannot_run_is_named_and_removed(place: Path) -> None:
    done = run(pack(place, "#!/bin/sh\nexit 127\n"), HOME=place)
    assert done.returncode == 6
    assert done.stderr.startswith(
        "pulsar-meta: this system can't run the program, which was made for glibc 2."
    )
    assert list((place / ".cache" / "pulsar-meta").iterdir()) == []


MOUNTS = """
set -e
mount --make-rprivate /
mount --bind / "$1"
mount -o remount,ro,bind "$1"
mount --bind /dev "$1/dev"
mount -t tmpfs -o "$2" none "$1/dev/shm"
shift 2
exec chroot "$ROOT_DIRECTORY" "$@"
"""


def read_only(place: Path, shm: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in an empty environment. Only /dev/shm is writable, with the options `shm`."""
    root = place / "root"
    root.mkdir(exist_ok=True)
    mounts = MOUNTS.replace("$ROOT_DIRECTORY", str(root))
    unshare = ["unshare", "--mount", "sh", "-c", mounts, "sh", str(root), shm]
    empty = ["/usr/bin/env", "-i"]
    return subprocess.run(
        [*unshare, *empty, *map(str, command)],
        input="input", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_read_only_system_needs_room_for_programs(executable: Path, place: Path) -> None:
    needs_root()
    done = read_only(place, "mode=1777", executable, "x")
    assert (done.returncode, done.stdout.splitlines()[1:]) == (5, ["1 x", "input"]), done.stderr
    assert done.stdout.startswith("/dev/shm/")
    for shm in ("noexec", "ro", "size=4k"):
        done = read_only(place, shm, executable)
        assert (done.returncode, done.stdout) == (6, ""), shm
        assert done.stderr.startswith("pulsar-meta: no room to unpack 1 MB; set TMPDIR"), shm


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The real executable, and the program in the environment that it was made from."""
    place = tmp_path_factory.mktemp("executable")
    dist = place / "dist"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = dist.glob("*.whl")
    subprocess.run([sys.executable, str(ROOT / "scripts" / "slim.py"), str(wheel)], check=True, timeout=60)
    places = {"DIST": str(dist), "BUILD": str(place), "BIN": str(Path(sys.executable).parent)}
    command = ["sh", "scripts/executable.sh"]
    subprocess.run(command, cwd=ROOT, env=os.environ | places, check=True, capture_output=True, timeout=900)
    open_to_all(place)
    return dist / "pulsar-meta", place / "executable" / "bin" / "pulsar-meta"


@pytest.mark.interop
def test_the_executable_runs_in_an_empty_environment(real: tuple[Path, Path], place: Path) -> None:
    needs_root()
    program, _ = real
    value = place / "value.bin"
    value.write_bytes(bytes.fromhex("0a090807100a18e8072001"))
    in_cache = run(program, "decode", str(value), HOME=place)
    assert "ledgers: 1, entries: 10, bytes: 1000" in in_cache.stdout, in_cache.stderr
    for done in (
        run(program, "decode", str(value), HOME=place),
        run(program, "decode", str(value), user=NOBODY),
        read_only(place, "mode=1777", program, "decode", value),
    ):
        assert (done.stdout, done.stderr, done.returncode) == (in_cache.stdout, "", 0)


@pytest.mark.interop
def test_the_executable_starts_in_less_than_three_times_the_time_of_the_program(
    real: tuple[Path, Path], place: Path
) -> None:
    value = place / "value.bin"
    value.write_bytes(bytes.fromhex("0a090807100a18e8072001"))
    least = [float("inf")] * 2
    for _ in range(8):
        for index, program in enumerate(real):
            before = processor_time()
            assert run(program, "decode", str(value), HOME=place).returncode == 0
            least[index] = min(least[index], processor_time() - before)
    assert least[0] < 3 * least[1], least


def processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

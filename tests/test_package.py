"""The sdist and the wheel have the same modules and run after installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SNAPSHOT = f"snapshot:{ROOT / 'fixtures' / 'release-0.1' / 'before.ndjson'}"
SOURCE_ROOTS = ("access", "api", "brokers", "cli", "codecs", "entries", "jobs", "proto", "stores")
SPARK = ("pyspark", "py4j")
NOT_IN_SLIM = (
    *SPARK, "pyarrow", "fastavro", "textual", "lz4", "zstandard", "google_crc32c", "grpc", "xxhash",
)  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist of this tree and the wheel that was built from it."""
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return directory


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (wheel_file,) = built.glob("*.whl")
    return wheel_file


def man_pages(names: list[str]) -> set[str]:
    """The man pages among the files of a wheel, without the folder that has the name of the distribution."""
    return {name.partition("/data/share/man/man1/")[2] for name in names} - {""}


def modules(names: list[str]) -> set[str]:
    return {name for name in names if name.endswith((".py", ".pyi")) or "/codes/" in name}


def test_sdist_and_wheel_have_the_same_modules_as_the_tree(built: Path, wheel: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = [name.split("/", 1)[-1] for name in archive.getnames()]
    of_sdist = modules(
        [
            name.split("/", 1)[1]
            for name in inside
            if name.startswith(tuple(f"{root}/" for root in SOURCE_ROOTS))
        ]
    )
    with zipfile.ZipFile(wheel) as archive:
        of_wheel = modules(archive.namelist())
    of_tree = {
        str(path.relative_to(ROOT / root))
        for root in SOURCE_ROOTS
        for path in (ROOT / root).rglob("*.py*")
        if path.suffix in {".py", ".pyi"}
    } | {str(path.relative_to(ROOT / "jobs")) for path in (ROOT / "jobs").rglob("codes/*.md")}
    assert of_sdist == of_wheel == of_tree


@pytest.fixture(scope="module")
def without_spark(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and every dependency except pyspark. Returns its `bin`."""
    return environment_with(wheel, tmp_path_factory.mktemp("installed"), SPARK)


def environment_with(wheel: Path, home: Path, without: tuple[str, ...]) -> Path:
    """Make an environment with a wheel and the installed packages, except some. Returns its `bin`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith((*without, "pulsar_meta", "_editable", "__editable__")):
            (packages / path.name).symlink_to(path)
    install(home / "bin", wheel)
    return home / "bin"


def install(programs: Path, wheel: Path) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet"]
    subprocess.run([*command, "--no-compile", "--no-deps", "--no-index", str(wheel)], check=True, timeout=120)


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**clean_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def clean_environment() -> Mapping[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PULSAR_META"))
    }


def assert_runs(program: list[str], cwd: Path) -> None:
    """Check that the program lists a store and decodes a value."""
    listed = run(*program, "ls", "--store", SNAPSHOT, "/managed-ledgers", cwd=cwd)
    assert (listed.returncode, bool(listed.stdout)) == (0, True), listed.stderr
    version = run(*program, "--version", cwd=cwd)
    assert version.stdout.startswith("pulsar-meta ")


def test_everything_but_spark_runs_without_pyspark(without_spark: Path, tmp_path: Path) -> None:
    assert_runs([str(without_spark / "pulsar-meta")], tmp_path)
    assert_runs([str(without_spark / "python"), "-m", "pulsar_meta"], tmp_path)
    frames = f"frames:{ROOT / 'fixtures' / 'release-0.1' / 'frames'}"
    ask = [str(without_spark / "pulsar-meta"), "verify-entries", "--entries", frames]
    here = run(*ask, cwd=tmp_path)
    assert (here.returncode, here.stderr) == (0, "checked: 1 ledger, 12 entries\n")
    spark = run(*ask, "--engine", "spark", cwd=tmp_path)
    assert spark.returncode == 6
    assert spark.stderr.splitlines() == [
        "pulsar-meta: Spark cannot run: pyspark is not installed (pip install pyspark pyarrow)"
    ]


def test_the_slim_wheel_has_the_same_modules_and_names_what_it_lacks(wheel: Path, tmp_path: Path) -> None:
    copy = shutil.copy(wheel, tmp_path)
    made = run(sys.executable, str(ROOT / "scripts" / "slim.py"), str(copy), cwd=tmp_path)
    slim = Path(made.stdout.strip())
    with zipfile.ZipFile(wheel) as complete, zipfile.ZipFile(slim) as small:
        assert modules(small.namelist()) == modules(complete.namelist())
        pages = {path.name for path in (ROOT / "docs" / "man").iterdir()}
        assert man_pages(small.namelist()) == man_pages(complete.namelist()) == pages
        (record,) = [name for name in small.namelist() if name.endswith("RECORD")]
        recorded = [line.split(",")[0] for line in small.read(record).decode().splitlines()]
        assert recorded == small.namelist()
    programs = environment_with(slim, tmp_path / "installed", NOT_IN_SLIM)
    program = str(programs / "pulsar-meta")
    assert_runs([program], tmp_path)
    assert (programs.parent / "share" / "man" / "man1" / "pulsar-meta.1").exists()
    frames = f"frames:{ROOT / 'fixtures' / 'release-0.1' / 'frames'}"
    asked = run(program, "verify-entries", "--entries", frames, cwd=tmp_path)
    assert (asked.returncode, asked.stderr) == (0, "checked: 1 ledger, 12 entries\n")
    dump = (program, "dump-entries", "--entries", frames, "-o")
    assert run(*dump, "ndjson", cwd=tmp_path).returncode == 0
    assert run(*dump, "parquet", "--output", "entries.parquet", cwd=tmp_path).stderr == (
        "pulsar-meta: this needs pyarrow, which is not installed (pip install pyarrow)\n"
    )
    assert run(program, "ls", "--store", "etcd://127.0.0.1:1", "/", cwd=tmp_path).stderr == (
        "pulsar-meta: etcd: needs grpc, which is not installed (pip install grpcio)\n"
    )
    # The two distributions can be installed over each other.
    install(programs, wheel)
    assert_runs([program], tmp_path)
    install(programs, slim)
    assert_runs([program], tmp_path)


@pytest.mark.interop
@pytest.mark.parametrize("installer", ["pipx", "uv"])
def test_installers_include_the_clients_of_live_stores(installer: str, wheel: Path, tmp_path: Path) -> None:
    """Runs `pipx install` and `uv tool install` of the wheel with its requirements from PyPI."""
    places = {
        "PIPX_HOME": str(tmp_path / "home"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "UV_TOOL_DIR": str(tmp_path / "home"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        # uv would keep two more gigabytes of pyspark with each run.
        "UV_NO_CACHE": "1",
    }
    tool = [
        sys.executable,
        "-m",
        *(["pipx", "install"] if installer == "pipx" else ["uv", "tool", "install"]),
    ]
    installed = run(*tool, str(wheel), cwd=tmp_path, **places)
    assert installed.returncode == 0, installed.stderr
    program = str(tmp_path / "bin" / "pulsar-meta")
    assert_runs([program], tmp_path)
    for store in ("zk://127.0.0.1:1", "etcd://127.0.0.1:1", "oxia://127.0.0.1:1"):
        away = run(program, "ls", "--store", store, "/", cwd=tmp_path)
        assert (away.returncode, "not installed" in away.stderr) == (6, False), away.stderr
    shutil.rmtree(tmp_path / "home")

"""Every command on a page of the documentation runs on a capture, and prints what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from scripts import screens
from typer.main import get_command

from pulsar_meta.cli.app import TyperUsageError, build_app
from tests.cli.program import as_text, environment, pulsar_meta_here
from tests.docs.blocks import (
    PAGES,
    ROOT,
    Block,
    Step,
    blocks_of,
    inline_of,
    is_printed,
    runs_of_program,
    split_at_operator,
)

CAPTURE: Final = "pulsar-4.2.4"
STORE: Final = f"rocksdb:{CAPTURE}/rocksdb"
ENTRIES: Final = f"bookie-disk:{CAPTURE}/bookie0"
# What a page names, and what a test has in its place.
STAND_INS: Final = [
    (r"\boxia://[^\s]+|\bzk://new:2181", "dir:new"),
    (r"\bzk://[^\s]+|\betcd://[^\s]+", STORE),
    (r"\bbookie-disk:(?:DIR|copy1|/[^\s]*)|\bbookie:(?=\s|$)", ENTRIES),
    (r" --entries bookie-disk:copy[23]| …(?= |$)", ""),
    (r"\b(?:monday|tuesday)/", f"{CAPTURE}/"),
    (r"\bTENANT/NAMESPACE\b", "public/default"),
    (r"\bTOPIC\b", "marks"),
    (r"\bCURSOR\b", "holes"),
    (r"\bLEDGER\b", "64"),
    (r"\bNAME\b", "standalone"),
    (r"/var/lib/node_exporter/", ""),
]
LEAVES_AT_ONCE: Final = {"--help", "--version", "--install-completion", "--show-completion"}
# A check that finds something ends with 1.
WELL: Final = (0, 1)
BLOCKS: Final = {page.relative_to(ROOT): list(blocks_of(page)) for page in PAGES}
RUN: Final = [page for page, blocks in BLOCKS.items() if any(block.not_run is None for block in blocks)]


@pytest.fixture
def folder(tmp_path: Path, capture: Callable[[str], Path]) -> Path:
    """Where a page's commands run: the capture under its name, its database a copy that may be written."""
    own, shared = tmp_path / "page", capture(CAPTURE)
    (own / CAPTURE).mkdir(parents=True)
    (own / "new").mkdir()
    shutil.copytree(shared / "rocksdb", own / CAPTURE / "rocksdb")
    (own / CAPTURE / "bookie0").symlink_to(shared / "bookie0")
    (own / CAPTURE / "metadata.ndjson").symlink_to(shared / "metadata.ndjson")
    return own


@pytest.mark.parametrize("page", RUN, ids=str)
def test_a_page_prints_what_it_says(page: Path, folder: Path, tmp_path: Path) -> None:
    settings = {"PULSAR_META_STORE": STORE, "PULSAR_META_ENTRIES": ENTRIES}
    env, wrong = environment(tmp_path / "state", **settings), list[str]()
    for block in BLOCKS[page]:
        for step in block.steps if block.not_run is None else ():
            if fault := fault_of(step, env, folder):
                wrong.append(f"{page}:{block.line}: {step.command}\n{fault}")
    assert not wrong, "\n\n".join(wrong)


def fault_of(step: Step, env: dict[str, str], folder: Path) -> str | None:
    """Run one command; return what is wrong with it, or with what the page says that it prints."""
    if step.command.startswith("export "):
        name, _, value = step.command.removeprefix("export ").partition("=")
        env[name] = stood_in(value)
        return None
    command = stood_in(step.command)
    if not command.startswith("pulsar-meta "):
        return "no command of pulsar-meta: mark the block as not run"
    code, out, said = ran(command, env, folder)
    if code not in WELL:
        return f"exit code {code}\n{out}{said}"
    if step.printed is None or is_printed(step.printed, out) or is_printed(step.printed, out + said):
        return None
    return f"printed:\n{out}{said}"


def ran(command: str, env: dict[str, str], folder: Path) -> tuple[int, str, str]:
    """Return exit code and outputs of a command, run in this process; what is behind it runs in a shell."""
    words, rest = split_at_operator(command)
    words = [re.sub(r"\$(\w+)", lambda found: env[found[1]], word) for word in words]
    done = as_text(pulsar_meta_here(*words[1:], env=env, folder=folder))
    if not rest:
        return done.returncode, done.stdout, done.stderr
    shell = subprocess.run(
        ["bash", "-c", f"cat {rest}"],
        input=done.stdout, capture_output=True, text=True, cwd=folder, env=env, check=False,
    )  # fmt: skip
    return max(done.returncode, shell.returncode), shell.stdout, shell.stderr + done.stderr


def stood_in(command: str) -> str:
    """Return a command with what a test has in the place of what it names."""
    for named, ours in STAND_INS:
        command = re.sub(named, ours, command)
    return command


@cache
def program() -> Any:
    return get_command(build_app())


def usage_fault(words: list[str], whole: bool) -> str | None:
    """Return what is wrong with a command line that is not run; one that is not `whole` may lack words."""
    words = [word for word in words if word not in ("…", "...")]
    if not words or LEAVES_AT_ONCE & {*words}:
        return None
    try:
        command, context = program(), program().make_context("pulsar-meta", list(words))
        while hasattr(command, "resolve_command"):
            name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, rest, parent=context)
    except TyperUsageError as error:
        missing = (
            type(error).__name__ == "MissingParameter" or "requires an argument" in error.format_message()
        )
        return None if missing and not whole else f"pulsar-meta {' '.join(words)}: {error.format_message()}"
    return None


def test_what_is_not_run_is_at_least_a_command() -> None:
    marked = [block for blocks in BLOCKS.values() for block in blocks if block.not_run is not None]
    faults = [fault for block in marked for fault in usage_faults(block)]
    inline = [runs_of_program(one) for page in PAGES for one in inline_of(page)]
    faults += [fault for runs in inline for words in runs if (fault := usage_fault(words, whole=False))]
    assert len(marked) > 10
    assert not faults, "\n".join(faults)


def usage_faults(block: Block) -> list[str]:
    runs = [words for step in block.steps for words in runs_of_program(step.command)]
    return [fault for words in runs if (fault := usage_fault(words, whole=True))]


@pytest.mark.parametrize(
    ("said", "printed"),
    [
        (("a…c", "…", "z"), "abc\nz\n"),
        (("a", "…"), "a\nb\nc"),
        (("…", "c"), "a\tb\nc\n"),
    ],
)
def test_dots_stand_for_anything(said: tuple[str, ...], printed: str) -> None:
    assert is_printed(said, printed)


@pytest.mark.parametrize(
    ("said", "printed"), [(("a", "c"), "a\nb\nc\n"), (("a",), "a\nb\n"), (("a…", "…"), "b\n")]
)
def test_what_is_not_printed_is_a_fault(said: tuple[str, ...], printed: str) -> None:
    assert not is_printed(said, printed)


def test_a_command_that_is_wrong_is_found(folder: Path, tmp_path: Path) -> None:
    env = environment(tmp_path, PULSAR_META_STORE=STORE)
    assert fault_of(Step("pulsar-meta ls -l /admin --no-such-option"), env, folder)
    assert fault_of(Step("pulsar-meta get topic marks | head -1", ("nothing",)), env, folder)
    assert fault_of(Step("make test"), env, folder)
    assert usage_fault(["check", "--no-such-option"], whole=False)
    assert usage_fault(["no-such-command"], whole=False)


@pytest.mark.parametrize("name", screens.COMMANDS)
def test_pictures_show_what_is_printed(name: str, folder: Path, tmp_path: Path) -> None:
    env = environment(tmp_path / "state", **screens.SETTINGS)
    steps = [(command, ran(command, env, folder)[1]) for command in screens.COMMANDS[name]]
    assert (screens.SCREENS / f"{name}.svg").read_text() == screens.svg(name, steps), (
        "make site draws it anew"
    )


@pytest.mark.parametrize("name", screens.BROWSED)
def test_pictures_show_the_browser(name: str, folder: Path) -> None:
    assert (screens.SCREENS / f"{name}.svg").read_text() == screens.browsed(name, folder), (
        "make site draws it anew"
    )

"""Every command on a page of the documentation runs on a capture and prints the output on the page."""

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
# Patterns of the names that pages use, and their replacements in tests.
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
# `check` ends with 1 if it finds anything.
WELL: Final = (0, 1)
BLOCKS: Final = {page.relative_to(ROOT): list(blocks_of(page)) for page in PAGES}
RUN: Final = [page for page, blocks in BLOCKS.items() if any(block.not_run is None for block in blocks)]


@pytest.fixture
def folder(tmp_path: Path, capture: Callable[[str], Path]) -> Path:
    """A directory for a page's commands: a capture under its name, with a writable copy of its database."""
    own, shared = tmp_path / "page", capture(CAPTURE)
    (own / CAPTURE).mkdir(parents=True)
    (own / "new").mkdir()
    shutil.copytree(shared / "rocksdb", own / CAPTURE / "rocksdb")
    (own / CAPTURE / "bookie0").symlink_to(shared / "bookie0")
    (own / CAPTURE / "metadata.ndjson").symlink_to(shared / "metadata.ndjson")
    return own


@pytest.mark.parametrize("page", RUN, ids=str)
def test_the_commands_of_a_page_print_what_the_page_shows(page: Path, folder: Path, tmp_path: Path) -> None:
    settings = {"PULSAR_META_STORE": STORE, "PULSAR_META_ENTRIES": ENTRIES}
    # The pages of commands show what a terminal shows.
    screen = page.parent == Path("docs/commands")
    settings |= {"COLUMNS": "100", "NO_COLOR": "1"} if screen else {}
    env, wrong = environment(tmp_path / "state", **settings), list[str]()
    for block in BLOCKS[page]:
        for step in block.steps if block.not_run is None else ():
            if fault := fault_of(step, env, folder, screen=screen):
                wrong.append(f"{page}:{block.line}: {step.command}\n{fault}")
    assert not wrong, "\n\n".join(wrong)


def fault_of(step: Step, env: dict[str, str], folder: Path, *, screen: bool = False) -> str | None:
    """Run one command; return a description of its failure or of wrong output, or None."""
    if step.command.startswith("export "):
        name, _, value = step.command.removeprefix("export ").partition("=")
        env[name] = substitute(value)
        return None
    command = substitute(step.command)
    if command.startswith(("echo ", "sed ")):
        subprocess.run(["bash", "-c", command], cwd=folder, check=True)
        return None
    if not command.startswith("pulsar-meta "):
        return "this is no command of pulsar-meta, so mark the block as not run"
    code, out, messages = run_command(command, env, folder, screen=screen)
    if code not in WELL:
        return f"exit code {code}\n{out}{messages}"
    if step.printed is None or is_printed(step.printed, out) or is_printed(step.printed, out + messages):
        return None
    return f"printed:\n{out}{messages}"


def run_command(
    command: str, env: dict[str, str], folder: Path, *, screen: bool = False
) -> tuple[int, str, str]:
    """Run a command here, and the remainder of its line in a shell; return exit code, stdout and stderr."""
    words, remainder = split_at_operator(command)
    words = [re.sub(r"\$(\w+)", lambda match: env[match[1]], word) for word in words]
    done = as_text(pulsar_meta_here(*words[1:], env=env, folder=folder, screen=screen))
    if not remainder:
        return done.returncode, done.stdout, done.stderr
    shell = subprocess.run(
        ["bash", "-c", f"cat {remainder}"],
        input=done.stdout, capture_output=True, text=True, cwd=folder, env=env, check=False,
    )  # fmt: skip
    return max(done.returncode, shell.returncode), shell.stdout, shell.stderr + done.stderr


def substitute(command: str) -> str:
    """Replace the names in a command by those that the tests use."""
    for pattern, replacement in STAND_INS:
        command = re.sub(pattern, replacement, command)
    return command


@cache
def program() -> Any:
    return get_command(build_app())


def usage_fault(words: list[str], complete: bool) -> str | None:
    """Return the fault of a command line without running it. Unless it is `complete`, it may lack words."""
    words = [word for word in words if word not in ("…", "...")]
    if not words or LEAVES_AT_ONCE & {*words}:
        return None
    try:
        command, context = program(), program().make_context("pulsar-meta", list(words))
        while hasattr(command, "resolve_command"):
            name, command, arguments = command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            context = command.make_context(name, arguments, parent=context)
    except TyperUsageError as error:
        missing = (
            type(error).__name__ == "MissingParameter" or "requires an argument" in error.format_message()
        )
        return (
            None if missing and not complete else f"pulsar-meta {' '.join(words)}: {error.format_message()}"
        )
    return None


def test_commands_that_tests_do_not_run_parse() -> None:
    marked = [block for blocks in BLOCKS.values() for block in blocks if block.not_run is not None]
    faults = [fault for block in marked for fault in usage_faults(block)]
    inline = [runs_of_program(code) for page in PAGES for code in inline_of(page)]
    faults += [fault for runs in inline for words in runs if (fault := usage_fault(words, complete=False))]
    assert len(marked) > 10
    assert not faults, "\n".join(faults)


def usage_faults(block: Block) -> list[str]:
    runs = [words for step in block.steps for words in runs_of_program(step.command)]
    return [fault for words in runs if (fault := usage_fault(words, complete=True))]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (("a…c", "…", "z"), "abc\nz\n"),
        (("a", "…"), "a\nb\nc"),
        (("…", "c"), "a\tb\nc\n"),
    ],
)
def test_dots_stand_for_anything(shown: tuple[str, ...], printed: str) -> None:
    assert is_printed(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"), [(("a", "c"), "a\nb\nc\n"), (("a",), "a\nb\n"), (("a…", "…"), "b\n")]
)
def test_output_that_differs_does_not_match(shown: tuple[str, ...], printed: str) -> None:
    assert not is_printed(shown, printed)


def test_a_wrong_command_is_a_fault(folder: Path, tmp_path: Path) -> None:
    env = environment(tmp_path, PULSAR_META_STORE=STORE)
    assert fault_of(Step("pulsar-meta ls -l /admin --no-such-option"), env, folder)
    assert fault_of(Step("pulsar-meta get topic marks | head -1", ("nothing",)), env, folder)
    assert fault_of(Step("make test"), env, folder)
    assert usage_fault(["check", "--no-such-option"], complete=False)
    assert usage_fault(["no-such-command"], complete=False)


@pytest.mark.parametrize("name", screens.COMMANDS)
def test_pictures_show_what_their_commands_print(name: str, folder: Path, tmp_path: Path) -> None:
    env = environment(tmp_path / "state", **screens.SETTINGS)
    steps = [(command, screens.shown_by(command, folder, env)) for command in screens.COMMANDS[name]]
    assert (screens.SCREENS / f"{name}.svg").read_text() == screens.svg(name, steps), (
        "run `make site` to draw it again"
    )


@pytest.mark.parametrize("name", screens.BROWSED)
def test_pictures_show_the_browser(name: str, folder: Path) -> None:
    assert (screens.SCREENS / f"{name}.svg").read_text() == screens.browsed(name, folder), (
        "run `make site` to draw it again"
    )

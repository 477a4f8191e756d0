"""Files for other programs: the Dockerfile, GitHub's workflows and issue forms, and the tag of a release."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.restartable import skip_or_fail

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"


def checked(*command: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = command
    return subprocess.run(
        [str(Path(sys.executable).parent / program), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_hadolint_accepts_the_dockerfile() -> None:
    done = checked("hadolint", str(ROOT / "Dockerfile"))
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_has_two_targets_and_no_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for target in ("plain", "java"):
        stage = text.split(f" AS {target}\n")[1].split("\nFROM ")[0]
        assert re.findall(r"^USER (.*)$", stage, re.MULTILINE) == ["10000"]


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", sorted(GITHUB.glob("workflows/*.yml"))),
        (
            "vendor.github-issue-forms",
            [GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml" for name in ("fault", "wish")],
        ),
        ("vendor.github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
    ],
)
def test_github_accepts_its_files(schema: str, files: list[Path]) -> None:
    done = checked("check-jsonschema", "--builtin-schema", schema, *map(str, files))
    assert done.returncode == 0, done.stdout


def test_workflows_use_existing_make_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {
        name
        for path in GITHUB.glob("workflows/*.yml")
        for name in re.findall(r"run: make ([a-z-]+)", path.read_text())
    }
    assert called
    assert called <= targets


def test_a_wrong_tag_publishes_nothing() -> None:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)
    changelog = "# Changelog\n\n## 1.2.3\n\n- …\n"
    assert release.why_not("v1.2.3", "1.2.3", changelog) is None
    assert "the tag must be v1.2.3" in release.why_not("v1.2.4", "1.2.3", changelog)
    assert "no section" in release.why_not("v1.2.4", "1.2.4", changelog)


def test_groff_accepts_the_man_pages() -> None:
    if shutil.which("groff") is None:
        skip_or_fail("groff", "groff is not installed")
    for path in sorted((ROOT / "docs" / "man").iterdir()):
        formatted = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (formatted.returncode, formatted.stderr) == (0, ""), path
        assert "\nSEE ALSO\n" in formatted.stdout, path
    seek = (ROOT / "docs" / "man" / "pulsar-meta-seek.1").read_text()
    assert "\\fB\\-\\-index\\-file FILE\\fP" in seek


def test_workflows_name_the_commit_of_each_action() -> None:
    """The publisher of PyPI asks for its branch, which moves with each release of the action."""
    used = {
        action
        for path in GITHUB.glob("workflows/*.yml")
        for action in re.findall(r"uses: ([^.\s]\S+)", path.read_text())
    }
    unpinned = {action for action in used if not re.search(r"@[0-9a-f]{40}$", action)}
    assert unpinned == {"pypa/gh-action-pypi-publish@release/v1"}


def test_a_release_runs_the_tests_of_every_push() -> None:
    release = (GITHUB / "workflows" / "release.yml").read_text()
    assert "  test:\n    uses: ./.github/workflows/test.yml\n  build:\n    needs: test\n" in release
    assert "  workflow_call:\n" in (GITHUB / "workflows" / "test.yml").read_text()

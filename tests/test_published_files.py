"""Files for other programs: the Dockerfile, GitHub's workflows and issue forms, and the tag of a release."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers.restartable import skip_or_fail

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"


def script(name: str) -> Any:
    """Load a script of the folder `scripts` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    release = script("release")
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
    used = {
        action
        for path in GITHUB.glob("workflows/*.yml")
        for action in re.findall(r"uses: ([^.\s]\S+)", path.read_text())
    }
    assert used
    assert {action for action in used if not re.search(r"@[0-9a-f]{40}$", action)} == set()


def test_a_release_runs_the_tests_of_every_push() -> None:
    release = (GITHUB / "workflows" / "release.yml").read_text()
    assert "  test:\n    uses: ./.github/workflows/test.yml\n  build:\n    needs: test\n" in release
    assert "  workflow_call:\n" in (GITHUB / "workflows" / "test.yml").read_text()


def test_the_recipes_say_what_pyproject_says(tmp_path: Path) -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, recipes = table["project"], script("recipes")
    conda = yaml.safe_load((ROOT / recipes.CONDA).read_text().replace("{{ PYTHON }}", "python"))
    formula = (ROOT / recipes.FORMULA).read_text()
    assert conda["package"] == {"name": project["name"], "version": project["version"]}
    needed = {recipes.CONDA_NAMES.get(name, name): wanted for name, wanted in ranges(project["dependencies"])}
    for name in recipes.NOT_ON_CONDA:
        assert f"{name}{needed.pop(name)}" in (ROOT / recipes.CONDA).read_text()
    run = dict(line.split(" ") for line in conda["requirements"]["run"])
    assert run == {"python": project["requires-python"], **needed}
    assert f"pulsar_meta_slim-{project['version']}-py3-none-any.whl" in formula
    assert recipes.FORMULA_PYTHON in re.findall(
        r'"(3\.\d+)"', (GITHUB / "workflows" / "test.yml").read_text()
    )
    wheel = tmp_path / "made.whl"
    wheel.write_bytes(b"wheel")
    printed = checked("python", str(ROOT / "scripts" / "recipes.py"), str(wheel)).stdout
    assert f'  sha256 "{hashlib.sha256(b"wheel").hexdigest()}"\n' in printed
    assert {path: text == (ROOT / path).read_text() for path, text in recipes.recipes().items()} == {
        recipes.CONDA: True,
        recipes.FORMULA: True,
    }


def ranges(requirements: list[str]) -> list[tuple[str, str]]:
    """Split requirements into names and ranges."""
    return [(name, text[len(name) :]) for text in requirements for name in re.findall(r"^[\w.-]+", text)]

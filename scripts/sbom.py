"""Print the software bill of materials of the wheel (CycloneDX 1.6), with versions from requirements.lock."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def normalized(name: str) -> str:
    """Return the name of a package as PyPI's addresses have it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_versions() -> dict[str, str]:
    """Return the version of each package in the lock file."""
    text = (ROOT / "requirements.lock").read_text()
    return {normalized(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M)}


def needed_packages(requirements: Iterable[str]) -> set[str]:
    """Return the names of all packages that requirements install, directly or through others."""
    names: set[str] = set()
    pending = list(requirements)
    while pending:
        requirement = Requirement(pending.pop())
        name = normalized(requirement.name)
        marker = requirement.marker
        if name in names or (marker is not None and not marker.evaluate({"extra": ""})):
            continue
        names.add(name)
        try:
            pending += distribution(name).requires or ()
        except PackageNotFoundError as error:
            raise SystemExit(f"{name} is not installed: run make setup") from error
    return names


def component(name: str, version: str) -> dict[str, Any]:
    """Describe a package from PyPI."""
    address = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}


def bill() -> dict[str, Any]:
    """Return the document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = locked_versions()
    program = component(project["name"], project["version"]) | {"type": "application"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": program},
        "components": [
            component(name, versions[name]) for name in sorted(needed_packages(project["dependencies"]))
        ],
    }


if __name__ == "__main__":
    print(json.dumps(bill(), indent=2))

"""Check that a tag fits the version that it publishes: `python scripts/release.py v1.2.3`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def why_not(tag: str, version: str, changelog: str) -> str | None:
    """Return why `tag` cannot publish `version` with this changelog, or None if it can."""
    if tag != f"v{version}":
        return f"the tag is {tag!r}, but the package has version {version}, so the tag must be v{version}"
    if f"\n## {version}" not in changelog:
        return f"CHANGELOG.md has no section '## {version}'"
    return None


def main() -> None:
    """Check the tag on the command line."""
    tag = sys.argv[1] if len(sys.argv) == 2 else ""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    why = why_not(tag, version, (ROOT / "CHANGELOG.md").read_text())
    if why:
        sys.exit(f"release: {why}")
    print(f"release: {tag} fits")


if __name__ == "__main__":
    main()

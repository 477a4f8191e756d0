"""Whether a tag fits what it would publish: `python scripts/release.py v1.2.3`; exit 1 and why, where not."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def why_not(tag: str, version: str, changelog: str) -> str | None:
    """Return why `tag` cannot publish `version` with this changelog, None where it can."""
    if tag != f"v{version}":
        return f"the tag is {tag!r}, the package's version {version}: v{version} is its tag"
    if f"\n## {version}" not in changelog:
        return f"CHANGELOG.md has no part '## {version}'"
    return None


def main() -> None:
    """Check the tag that is given."""
    tag = sys.argv[1] if len(sys.argv) == 2 else ""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    why = why_not(tag, version, (ROOT / "CHANGELOG.md").read_text())
    if why:
        sys.exit(f"release: {why}")
    print(f"release: {tag} fits")


if __name__ == "__main__":
    main()

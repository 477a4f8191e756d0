"""What mkdocs asks while it builds the site: pages from outside docs/, and links as the repository has them.

A link is written so that it works where the sources are looked at; here it is pointed at the page that has
what it names. One that names nothing on the site is left as it is, and ends a strict build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
# Files of the repository, and where they are on the site.
OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "fixtures/captures/SOURCE.md": "captures-shipped.md",
    "LICENSE": "LICENSE",
}
# Folders that are no pages, and the page that leads to what is in them.
FOLDERS: Final = {"docs/errors": "questions/topic-does-not-load.md", "docs/schemas": "schemas.md"}
LINK: Final = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def on_config(config: Any) -> Any:
    """Put every page that the navigation does not name at the end of its last part."""
    named = {*re.findall(r"[\w./-]+\.md", str(config.nav))}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    pages |= {place for place in OUTSIDE.values() if place.endswith(".md")}
    reference = next(part["Reference"] for part in config.nav if "Reference" in part)
    reference += sorted(pages - named)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what lies outside docs/."""
    from mkdocs.structure.files import File

    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point the links of a page at pages of the site."""
    place = page.file.src_uri
    source = next((file for file, given in OUTSIDE.items() if given == place), f"docs/{place}")

    def pointed(link: re.Match[str]) -> str:
        before, target, anchor, after = link.groups()
        return f"{before}{site_link(source, place, target)}{anchor or ''}{after}"

    return LINK.sub(pointed, markdown)


def site_link(source: str, place: str, target: str) -> str:
    """Return the link from the page `place`, whose file is `source`, to what `target` names there."""
    if re.match(r"[a-z]+:|/", target):
        return target
    named = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    page = OUTSIDE.get(named) or FOLDERS.get(named) or named.removeprefix("docs/")
    return posixpath.relpath(page, posixpath.dirname(place) or ".")

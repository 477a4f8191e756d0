"""Hooks of mkdocs: they add pages from outside docs/ and adapt links.

Links in the sources work in the repository. On the site they are pointed at the page of the linked file. A
link without a page stays unchanged and fails a strict build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
# Files outside docs/, and their pages on the site.
OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "tests/README.md": "tests.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "fixtures/captures/SOURCE.md": "captures-shipped.md",
    "LICENSE": "LICENSE",
}
# Folders without a page, and the page that links to their files.
FOLDERS: Final = {"docs/errors": "how-to/topic-does-not-load.md", "docs/schemas": "schemas.md"}
LINK: Final = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def on_config(config: Any) -> Any:
    """Add the pages that the navigation does not name to its Reference section."""
    named = {*re.findall(r"[\w./-]+\.md", str(config.nav))}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    pages |= {place for place in OUTSIDE.values() if place.endswith(".md")}
    reference = next(part["Reference"] for part in config.nav if "Reference" in part)
    commands = {page for page in pages if page.startswith("commands/")}
    at = reference.index({"Commands": "commands.md"})
    reference[at] = {"Commands": [{"All commands": "commands.md"}, *sorted(commands)]}
    reference += sorted(pages - named - commands)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside docs/."""
    from mkdocs.structure.files import File

    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point a page's links at pages of the site."""
    place = page.file.src_uri
    source = next((file for file, page_ in OUTSIDE.items() if page_ == place), f"docs/{place}")

    def replace(link: re.Match[str]) -> str:
        before, target, anchor, after = link.groups()
        return f"{before}{site_link(source, place, target)}{anchor or ''}{after}"

    return LINK.sub(replace, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Remove the backslash before `|` in the code of tables, which only GitHub needs."""
    return re.sub(r"(?s)<td.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html)


def on_post_page(output: str, **_: Any) -> str:
    """Name the theme's search dialog for screen readers, and let keyboards scroll wide code."""
    dialog = 'data-md-component="search" role="dialog"'
    output = re.sub(r"(<pre[^>]*>(?:<span></span>)?<code)(?=>)", r'\1 tabindex="0"', output)
    return output.replace(dialog, f'{dialog} aria-label="Search"')


def site_link(source: str, place: str, target: str) -> str:
    """Return the link from page `place`, whose file is `source`, to the page of `target`."""
    if re.match(r"[a-z]+:|/", target):
        return target
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    page = OUTSIDE.get(file) or FOLDERS.get(file) or file.removeprefix("docs/")
    return posixpath.relpath(page, posixpath.dirname(place) or ".")

"""The pages of docs/errors: titled by a broker's own words, their findings and links are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pulsar_meta.jobs.check.catalogue import CODES, ERROR_PAGES, findings_page

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted((DOCS / "errors").glob("*.md"))
SAID = {text for code in CODES.values() for text in code.errors}


def test_every_page_is_named_and_linked_by_findings() -> None:
    titles = {page.read_text().splitlines()[0].removeprefix("# "): page.stem for page in PAGES}
    assert titles == ERROR_PAGES
    assert titles.keys() <= SAID
    assert all(f"](errors/{page.name})" in findings_page() for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_links_resolve_and_it_says_how_to_look_and_what_to_do(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text)
    assert any(name in CODES for _, name in links)
    for file, anchor in links:
        target = (page.parent / file).resolve()
        assert target.is_file()
        if anchor:
            assert f"### {anchor}\n" in target.read_text()
            assert text.startswith("# ")
    assert "    pulsar-meta check" in text
    assert "**Without pulsar-meta.**" in text
    for verb in re.findall(r"pulsar-meta repair ([a-z-]+)", text):
        assert f"## repair {verb}" in (DOCS / "repair.md").read_text()

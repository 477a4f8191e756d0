"""The pages in docs/errors are titled with a broker's error message, and their findings and links exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pulsar_meta.jobs.check.codes import all_codes

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted((DOCS / "errors").glob("*.md"))
MESSAGES = {text for code in all_codes().values() for text in code.errors}


def test_every_page_is_titled_by_a_message_and_linked_by_findings() -> None:
    assert {page.read_text().splitlines()[0].removeprefix("# ") for page in PAGES} <= MESSAGES
    findings = (DOCS / "findings.md").read_text()
    assert all(f"](errors/{page.name})" in findings for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_resolve_and_every_page_has_commands(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text)
    assert any(name in all_codes() for _, name in links)
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

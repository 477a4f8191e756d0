"""On the documentation's site, every link works, lists render as lists, and every source is local."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Final

import pytest
from markdown_it import MarkdownIt

from tests.docs.blocks import ROOT

BROKEN: Final = (
    "# Broken\n\n[page](nothing.md) [anchor](disk.md#nothing) [outside](../../NOTHING.md) [good](disk.md)\n"
)
ITEM: Final = re.compile("<li[ >]")


def test_links_lists_and_sources_of_the_site(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    docs, site = tmp_path / "docs", tmp_path / "site"
    shutil.copytree(ROOT / "docs", docs)
    (docs / "how-to" / "broken.md").write_text(BROKEN)
    config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(docs), site_dir=str(site))
    with caplog.at_level(logging.WARNING, "mkdocs"):
        build(config)
    warnings = [record.getMessage() for record in caplog.records if record.name.startswith("mkdocs")]
    faults = [text for text in warnings if "nothing" in text.lower()]
    assert len(faults) == 3
    assert all("how-to/broken.md" in text for text in warnings), warnings
    assert (
        'class="md-footer__link md-footer__link--next" aria-label="Next: '
        in (site / "index.html").read_text()
    )
    for page in docs.rglob("*.md"):
        rendered = (site / page.relative_to(docs).with_suffix("") / "index.html").read_text()
        article = rendered.partition("<article")[2].partition("</article>")[0]
        read = MarkdownIt().enable("table").render(page.read_text())
        assert len(ITEM.findall(article)) >= len(ITEM.findall(read)), page
        assert 'role="dialog" aria-label="Search"' in rendered
        assert not re.search(r"(?s)<td(?:(?!</td>).)*\\\|", article), page
        assert not re.search("<pre[^>]*>(?:<span></span>)?<code>", rendered), page
        assert not re.search(r'<(?:script|img|link)[^>]*(?:src|href)="https?:', rendered), page

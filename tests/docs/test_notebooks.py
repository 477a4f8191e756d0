"""The notebooks of the documentation run, and their results agree with a capture's truth files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seek_truth import is_encrypted, is_transactional, read_truth

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"
LINE = r"(\d+) ms( +)([\d.]+) +(\d+)  (\S.*\S)  (\S+)"


# Libraries of the kernel warn about each other.
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_about_lagging_producers_finds_the_true_lags(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    folder = capture("pulsar-4.2.4")
    monkeypatch.setenv("CLUSTER", str(folder))
    text = (NOTEBOOKS / "producers_that_lag.ipynb").read_text()
    notebook = nbformat.reads(text, as_version=4)
    client = NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    truth, seen = lags(folder), 0
    for line in printed.splitlines():
        longest, _, _, count, topic, producer = re.fullmatch(LINE, line.strip()).groups()  # type: ignore[union-attr]
        if not is_transactional(topic) and not is_encrypted(topic):
            assert (int(longest), int(count)) == (max(truth[topic, producer]), len(truth[topic, producer]))
            seen += 1
    assert seen > 8
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert (tmp_path / "producers_that_lag.png").stat().st_size > 10_000


def lags(folder: Path) -> dict[tuple[str, str], list[int]]:
    """Return how long each message took from the producer's clock to the broker's, by topic and producer."""
    lags_of: dict[tuple[str, str], list[int]] = defaultdict(list)
    for topic, topic_truth in read_truth(folder).items():
        for message in topic_truth.get("messages", ()):
            if message["bt"] is not None:
                lags_of[topic, message["prod"]].append(message["bt"] - message["pt"])
    return lags_of

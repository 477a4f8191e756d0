"""Seek by Spark: the same answers as in one process, in the order of the questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_meta.codecs.errors import NotFoundError, PulsarMetaError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.seek.questions import INDEX, TIME, Question, SeekOptions
from pulsar_meta.jobs.seek.ranges import KeptRanges
from pulsar_meta.jobs.seek.seek import Cluster, seek_clusters
from pulsar_meta.jobs.spark.seek import seek_with_spark
from pulsar_meta.jobs.spark.session import _cause, failing_in_one_line
from pulsar_meta.spark import locate
from pulsar_meta.stores.registry import open_store
from tests.nightly import mostly_at_night
from tests.seek_truth import bookie_urls, read_truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Capture = Callable[[str], Path]
# Seek uses the session that exists.
SPARK = SparkSettings()


def representative(folder: Path) -> list[Question]:
    """Return questions of all kinds about every topic, in random order."""
    questions = []
    for topic, known in sorted(read_truth(folder).items(), reverse=True):
        indexes = sorted({m["ix"] for m in known.get("messages", []) if m.get("ix") is not None})
        chosen = [*indexes[::97], 0, 10**6]
        questions += [Question(topic, INDEX, index) for index in reversed(chosen)]
        times = sorted(int(time) for time in known.get("getMessageIdByTimestamp", {}))
        questions += [Question(topic, TIME, time) for time in times[::20]]
    return [*questions, Question("parted", INDEX, 5), Question("nowhere", INDEX, 5)]


def without_price(answers: Iterable[Document]) -> list[Document]:
    return [{key: answer[key] for key in answer if key != "entries_read"} for answer in answers]


@pytest.mark.parametrize(
    "name", mostly_at_night(("pulsar-4.2.4-3bookies", "pulsar-4.2.4", "pulsar-4.2.4-killed"))
)
def test_the_answers_equal_those_of_one_process(session: SparkSession, capture: Capture, name: str) -> None:
    folder, options = capture(name), SeekOptions()
    urls, questions = bookie_urls(folder), representative(folder)
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store, open_entries(urls) as source:
        clusters = [(Cluster(store, source, tuple(urls)), questions)]
        by_spark = list(seek_with_spark(clusters, options, print, SPARK))
        locally = list(seek_clusters(clusters, options, print))
    assert without_price(by_spark) == without_price(locally)
    assert sum(answer["status"] == "found" for answer in by_spark) > 150
    assert {answer["status"] for answer in by_spark} >= {"after-last", "no-index", "no-topic", "before-first"}


def test_an_error_in_a_worker_is_raised_here(session: SparkSession, capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    urls = bookie_urls(folder)
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store, open_entries(urls) as source:
        elsewhere = Cluster(store, source, (f"bookie-disk:{folder / 'not-here'}",))
        clusters = [(elsewhere, [Question("orders", INDEX, 5)])]
        with pytest.raises(NotFoundError):
            list(seek_with_spark(clusters, SeekOptions(), print, SPARK))


def test_several_clusters_are_searched_in_one_job(session: SparkSession, capture: Capture) -> None:
    with ExitStack() as stack:
        clusters = []
        for name in ("pulsar-4.2.4", "pulsar-4.2.4-killed"):
            folder = capture(name)
            urls = tuple(bookie_urls(folder))
            store = stack.enter_context(open_store(f"snapshot:{folder / 'metadata.ndjson'}"))
            source = stack.enter_context(open_entries(urls))
            clusters.append((Cluster(store, source, urls, name), representative(folder)))
        by_spark = list(seek_with_spark(clusters, SeekOptions(), print, SPARK))
        assert without_price(by_spark) == without_price(list(seek_clusters(clusters, SeekOptions(), print)))
    clusters_found = {answer["cluster"] for answer in by_spark if answer["status"] == "found"}
    assert clusters_found == {"pulsar-4.2.4", "pulsar-4.2.4-killed"}


def test_questions_that_metadata_answers_need_no_spark(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsar_meta.jobs.spark.seek.spark_session", lambda **_: pytest.fail("started"))
    folder = capture("pulsar-4.2.4")
    urls = bookie_urls(folder)
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store, open_entries(urls) as source:
        clusters = [(Cluster(store, source, tuple(urls)), [Question("nowhere", INDEX, 5)])]
        (answer,) = seek_with_spark(clusters, SeekOptions(), print, SPARK)
    assert answer["status"] == "no-topic"


def fail(_: int) -> int:
    raise ZeroDivisionError("no such luck")


def test_a_failed_job_is_an_error_of_one_line(session: SparkSession) -> None:
    failing = session.sparkContext.parallelize([1], 1).map(fail)
    with pytest.raises(PulsarMetaError) as raised, failing_in_one_line():
        failing.collect()
    assert str(raised.value) == "the Spark job failed: ZeroDivisionError: no such luck"


def test_workers_run_the_same_python(session: SparkSession) -> None:
    import sys

    def interpreter(_: int) -> str:
        import sys

        return sys.executable

    assert session.sparkContext.parallelize([1], 1).map(interpreter).collect() == [sys.executable]


def test_the_cause_is_the_last_python_error_or_the_text() -> None:
    assert _cause("Job aborted\n\tat org.apache.X\nValueError: five\n\tat y") == "ValueError: five"
    assert _cause('Exception in thread "main" org.a.SparkException: Bad master\n\tat x') == "Bad master"
    assert _cause("something") == "something"
    assert _cause("") == "no reason given"


def test_the_option_readable_reaches_the_workers(session: SparkSession, capture: Capture) -> None:
    folder, options = capture("transactions-4.2.4"), SeekOptions(readable=True)
    urls = bookie_urls(folder)
    questions = [Question("money", INDEX, index) for index in range(91)] + [Question("money", TIME, 2**40)]
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store, open_entries(urls) as source:
        clusters = [(Cluster(store, source, tuple(urls)), questions)]
        by_spark = list(seek_with_spark(clusters, options, print, SPARK))
        locally = list(seek_clusters(clusters, options, print))
    assert without_price(by_spark) == without_price(locally)
    assert {answer["status"] for answer in by_spark} == {"found", "aborted", "marker", "open"}


def test_locate_answers_a_data_frame_of_questions(
    session: SparkSession, capture: Capture, tmp_path: Path
) -> None:
    folder = capture("pulsar-4.2.4")
    store, urls = f"snapshot:{folder / 'metadata.ndjson'}", bookie_urls(folder)
    asked = [question for question in representative(folder) if question.topic != "nowhere"]
    rows = [
        (question.topic, *((question.target, None) if question.kind == INDEX else (None, question.target)))
        for question in asked
    ]
    questions = session.createDataFrame([*rows, ("nowhere", 5, None)], "topic string, index long, time long")
    answers = locate(session, questions, store=store, entries=urls).collect()
    with open_store(store) as opened, open_entries(urls) as source:
        clusters = [(Cluster(opened, source, tuple(urls)), [*asked, Question("nowhere", INDEX, 5)])]
        kept = KeptRanges()
        locally = list(seek_clusters(clusters, SeekOptions(), print, kept))
    fields = ("topic", "index", "time", "status", "ledger_id", "entry_id", "batch_index", "clock")
    expected = [tuple(answer.get(field) for field in fields) for answer in locally]
    assert Counter(tuple(row[field] for field in fields) for row in answers) == Counter(expected)
    assert {row.asked for row in answers if row.status == "no-topic"} == {"nowhere"}

    file = tmp_path / "ranges.parquet"
    with file.open("wb") as out:
        kept.write(out)
    again = locate(session, questions, store=store, entries=urls, ranges=str(file)).collect()
    assert Counter(tuple(row[field] for field in fields) for row in again) == Counter(expected)


def test_locate_refuses_questions_without_an_index_or_a_time(session: SparkSession) -> None:
    questions = session.createDataFrame([("orders",)], "topic string")
    with pytest.raises(UsageError, match="need the columns topic and index or time"):
        locate(session, questions, store="snapshot:nowhere", entries="bookie:")

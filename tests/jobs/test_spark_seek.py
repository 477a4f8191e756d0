"""Seek by Spark: the same answers as the local engine, in the order of the questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_meta.codecs.errors import NotFoundError, PulsarMetaError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.questions import TIME
from pulsar_meta.jobs.seek import INDEX, Document, Question, SeekOptions, plan_topic
from pulsar_meta.jobs.seek import seek as seek_locally
from pulsar_meta.jobs.spark.seek import seek_with_spark, share_out
from pulsar_meta.jobs.spark.session import _cause, spark_session, told_in_one_line
from pulsar_meta.stores.registry import open_store
from tests.seek_truth import bookie_urls, read_truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Capture = Callable[[str], Path]


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    """One Spark for the whole file; `seek_with_spark` takes the active session."""
    with spark_session(master="local[2]") as session:
        yield session


def representative(folder: Path) -> list[Question]:
    """Questions of all kinds about every topic, out of order."""
    questions = []
    for topic, told in sorted(read_truth(folder).items(), reverse=True):
        indexes = sorted({m["ix"] for m in told.get("messages", []) if m.get("ix") is not None})
        chosen = [*indexes[::97], 0, 10**6]
        questions += [Question(topic, INDEX, index) for index in reversed(chosen)]
        times = sorted(int(time) for time in told.get("getMessageIdByTimestamp", {}))
        questions += [Question(topic, TIME, time) for time in times[::20]]
    return [*questions, Question("parted", INDEX, 5), Question("nowhere", INDEX, 5)]


def without_price(answers: list[Document]) -> list[Document]:
    return [{key: answer[key] for key in answer if key != "entries_read"} for answer in answers]


@pytest.mark.parametrize("name", ["pulsar-4.2.4", "pulsar-4.2.4-3bookies", "pulsar-4.2.4-killed"])
def test_the_same_answers_as_local(session: SparkSession, capture: Capture, name: str) -> None:
    folder, options = capture(name), SeekOptions()
    urls, questions = bookie_urls(folder), representative(folder)
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store, open_entries(urls) as source:
        by_spark = list(seek_with_spark(store, source, urls, questions, options, print))
        locally = list(seek_locally(store, source, questions, options, print))
    assert without_price(by_spark) == without_price(locally)
    assert sum(answer["status"] == "found" for answer in by_spark) > 150
    assert {answer["status"] for answer in by_spark} >= {"after-last", "no-index", "no-topic", "before-first"}


def test_an_error_of_ours_in_a_worker_comes_home(session: SparkSession, capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    urls = bookie_urls(folder)
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store, open_entries(urls) as source:
        elsewhere = [f"bookie-disk:{folder / 'not-here'}"]
        asked = [Question("orders", INDEX, 5)]
        with pytest.raises(NotFoundError):
            list(seek_with_spark(store, source, elsewhere, asked, SeekOptions(), print))


def fail(_: int) -> int:
    raise ZeroDivisionError("no such luck")


def test_a_failed_job_is_one_line(session: SparkSession) -> None:
    failing = session.sparkContext.parallelize([1], 1).map(fail)
    with pytest.raises(PulsarMetaError) as raised, told_in_one_line():
        failing.collect()
    assert str(raised.value) == "the Spark job failed: ZeroDivisionError: no such luck"


def test_workers_run_on_our_python(session: SparkSession) -> None:
    import sys

    def interpreter(_: int) -> str:
        import sys

        return sys.executable

    assert session.sparkContext.parallelize([1], 1).map(interpreter).collect() == [sys.executable]


def test_shares_are_at_most_as_many_as_asked_and_hold_each_question_once(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    urls = tuple(bookie_urls(folder))
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store, open_entries(urls) as source:
        topic = TopicName.parse("orders")
        plans = {str(topic): plan_topic(store, source, topic, SeekOptions(), print)}
    numbered = [(number, Question(str(topic), INDEX, number)) for number in range(10)]
    for count in (1, 3, 10, 100):
        shares = share_out(numbered, plans, count)
        assert len(shares) <= count
        assert [one for share in shares for _, asked in share for one in asked] == numbered
    assert share_out([], plans, 4) == []


def test_the_cause_is_the_last_python_error_else_the_text() -> None:
    assert _cause("Job aborted\n\tat org.apache.X\nValueError: five\n\tat y") == "ValueError: five"
    assert _cause('Exception in thread "main" org.a.SparkException: Bad master\n\tat x') == "Bad master"
    assert _cause("something") == "something"
    assert _cause("") == "no reason given"

"""Data sources for Spark sessions of other people: notebooks and jobs that know nothing of this package.

    from pulsar_meta.jobs.spark.datasources import register
    register(spark)
    spark.read.format("pulsar_entries").option("entries", "bookie-disk:/bookie").load()

`pulsar_ledgers` and `pulsar_cursors` read a store, `pulsar_entries` and `pulsar_messages` entries.
docs/spark.md has the options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsar_meta.jobs.spark.entry_source import PulsarEntries, PulsarEntriesPushed
from pulsar_meta.jobs.spark.message_source import PulsarMessages, PulsarMessagesPushed
from pulsar_meta.jobs.spark.metadata_source import PulsarCursors, PulsarLedgers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the data sources known to a session.

    Filters are pushed down where the session has PUSHDOWN set by now: Spark refuses a source that could
    take filters in a session that does not have it.
    """
    pushed = spark.conf.get(PUSHDOWN, "false") == "true"
    entries = (PulsarEntriesPushed, PulsarMessagesPushed) if pushed else (PulsarEntries, PulsarMessages)
    for source in (PulsarLedgers, PulsarCursors, *entries):
        spark.dataSource.register(source)

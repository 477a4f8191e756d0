"""Find and read the entries of Pulsar topics in a Spark session of your own.

    from pulsar_meta import spark as pulsar

    answers = pulsar.locate(spark, questions, store="zk://zk1:2181", entries="bookie:")
    pulsar.register(spark)
    entries = spark.read.format("pulsar_entries").option("entries", "bookie-disk:/data/bookie").load()

The names in this module keep their meanings until the next major version.
"""

from pulsar_meta.jobs.spark.datasources import register
from pulsar_meta.jobs.spark.seek import locate

__all__ = ["locate", "register"]

"""Results of `check` and `top` as OpenMetrics text for a textfile collector.

Labels are only `code`, `severity` and `namespace`, so that topics don't become time series.
Names and labels are part of the contract (docs/monitoring.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

Row = tuple[Sequence[str], float]


class FindingCounts:
    """Counts findings by code, severity and namespace; only the given severities appear in the text."""

    def __init__(self, severities: Sequence[str]) -> None:
        self._severities = severities
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def counting(self, findings: Iterable[Document]) -> Iterator[Document]:
        """Yield the findings and count them."""
        for finding in findings:
            self._counts[finding["code"], finding["severity"], namespace_of(finding)] += 1
            yield finding

    def text(self, checked: Mapping[str, int], not_checked: Mapping[str, str], now: float) -> str:
        """Return the text with all counts and the time of the check (seconds since 1970)."""
        by_severity = dict.fromkeys(self._severities, 0)
        for (_, severity, _), count in self._counts.items():
            by_severity[severity] += count
        return _exposed(
            _gauge(
                "check_findings",
                "Findings of check.",
                ("code", "severity", "namespace"),
                sorted(self._counts.items()),
            ),
            _gauge(
                "check_findings_of_severity",
                "Findings of check by severity, over all codes and namespaces.",
                ("severity",),
                (((severity,), count) for severity, count in by_severity.items()),
            ),
            *(
                _gauge(f"check_{noun}", f"Number of {noun} that check read.", (), [((), count)])
                for noun, count in checked.items()
            ),
            _gauge(
                "check_not_checked",
                "Number of things that check could not check.",
                (),
                [((), len(not_checked))],
            ),
            _gauge("check_time_seconds", "Time of the check (Unix time).", (), [((), now)]),
        )


def namespace_of(finding: Document) -> str:
    """Return the namespace (tenant/namespace) of a finding's topic, "" if it has none."""
    topic = finding.get("topic")
    if topic is None:
        return ""
    try:
        name = TopicName.parse(topic)
    except PulsarMetaError:
        return ""
    return "/".join(part for part in (name.tenant, name.cluster, name.namespace) if part)


def top_text(document: Document, now: float) -> str:
    """Return the text for a document of `top`: values and bytes by namespace, and in total."""
    total, namespaces = document["total"], document["namespaces"]
    fields = {
        "values": ("count", "Values of the metadata store."),
        "stored_bytes": ("size", "Bytes of values as they are stored."),
        "unpacked_bytes": ("raw_size", "Bytes of values when unpacked."),
    }
    biggest = [((), max(value["size"] for value in document["biggest"]))] if document["biggest"] else []
    return _exposed(
        *(
            _gauge(
                f"store_namespace_{name}",
                f"{text} By namespace.",
                ("namespace",),
                (((row["namespace"],), row[field]) for row in namespaces),
            )
            for name, (field, text) in fields.items()
        ),
        *(_gauge(f"store_{name}", text, (), [((), total[field])]) for name, (field, text) in fields.items()),
        _gauge("store_biggest_value_bytes", "Bytes of the biggest value.", (), biggest),
        _gauge("store_time_seconds", "When top was run (Unix time).", (), [((), now)]),
    )


def _gauge(name: str, text: str, labels: Sequence[str], rows: Iterable[Row]) -> GaugeMetricFamily:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"pulsar_meta_{name}", text, labels=labels)
    for values, number in rows:
        family.add_metric(list(values), number)
    return family


def _exposed(*families: Any) -> str:
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics.exposition import generate_latest

    class Families:
        def collect(self) -> Iterable[Any]:
            return families

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families())
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()

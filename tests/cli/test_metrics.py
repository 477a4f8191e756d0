"""`-o openmetrics` of `check` and `top`: read back by Prometheus's own parsers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pulsar_meta.codecs.names import ledger_path
from tests.cli.program import as_text, pulsar_meta_here
from tests.servers.restartable import skip_or_fail

Capture = Callable[[str], Path]
MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
LABELS = {"code", "severity", "namespace"}


@pytest.fixture
def wounded(capture: Capture, tmp_path: Path) -> str:
    """A store without the metadata of one ledger of the topic `plain`."""
    lines = (
        (capture("pulsar-4.2.4") / "metadata.ndjson").read_text(encoding="utf-8").splitlines(keepends=True)
    )
    kept = [line for line in lines if json.loads(line)["path"] != ledger_path(25)]
    (tmp_path / "wounded.ndjson").write_text("".join(kept), encoding="utf-8")
    return f"snapshot:{tmp_path}/wounded.ndjson"


def metrics(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]


def value(family: Metric, **labels: str) -> float:
    [found] = [sample.value for sample in family.samples if sample.labels == labels]
    return found


def test_findings_are_counted_by_code_severity_and_namespace(wounded: str, tmp_path: Path) -> None:
    file = tmp_path / "check.prom"
    done = as_text(pulsar_meta_here("check", "--store", wounded, "-o", "openmetrics", "--output", str(file)))
    assert done.returncode == 1
    found = metrics(file.read_text())
    listed = as_text(pulsar_meta_here("check", "--store", wounded, "-o", "json"))
    findings = json.loads(listed.stdout)
    by_code = found["pulsar_meta_check_findings"]
    assert sum(sample.value for sample in by_code.samples) == len(findings)
    wound = {"code": "ledger-without-metadata", "severity": "error", "namespace": "public/default"}
    assert value(by_code, **wound) == 1
    by_severity = found["pulsar_meta_check_findings_of_severity"]
    assert (value(by_severity, severity="error"), value(by_severity, severity="warning")) == (1, 0)
    checked = json.loads(listed.stderr.splitlines()[-1])
    assert {noun: value(found[f"pulsar_meta_check_{noun}"]) for noun in checked["checked"]} == checked[
        "checked"
    ]
    assert value(found["pulsar_meta_check_not_checked"]) == len(checked["not_checked"])

    few = ("check", "--store", wounded, "-o", "openmetrics", "--severity", "error")
    some = metrics(as_text(pulsar_meta_here(*few)).stdout)["pulsar_meta_check_findings_of_severity"]
    assert [(sample.labels, sample.value) for sample in some.samples] == [({"severity": "error"}, 1)]


def test_sizes_are_those_of_the_other_forms(wounded: str) -> None:
    found = metrics(as_text(pulsar_meta_here("top", "--store", wounded, "-o", "openmetrics")).stdout)
    document = json.loads(as_text(pulsar_meta_here("top", "--store", wounded, "-o", "json")).stdout)
    assert value(found["pulsar_meta_store_values"]) == document["total"]["count"]
    assert value(found["pulsar_meta_store_biggest_value_bytes"]) == document["biggest"][0]["size"]
    for row in document["namespaces"]:
        name = {"namespace": row["namespace"]}
        assert value(found["pulsar_meta_store_namespace_stored_bytes"], **name) == row["size"]


def test_labels_are_few_and_names_those_of_the_docs(wounded: str) -> None:
    text = "".join(
        as_text(pulsar_meta_here(command, "--store", wounded, "-o", "openmetrics")).stdout.replace(
            "# EOF\n", ""
        )
        for command in ("check", "top")
    )
    found = metrics(text + "# EOF\n")
    assert {
        label for family in found.values() for sample in family.samples for label in sample.labels
    } == LABELS
    written = re.findall(
        r"pulsar_meta_\w+", "".join(path.read_text() for path in sorted(MONITORING.iterdir()))
    )
    assert written
    assert set(written) <= set(found)


def test_a_verdict_is_no_metric(wounded: str) -> None:
    done = as_text(
        pulsar_meta_here("check", "--store", wounded, "--before-upgrade", "4.0.7", "-o", "openmetrics")
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "choose another form" in done.stderr


def test_the_dashboard_asks_for_its_data_source() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {"${datasource}"}


@pytest.mark.interop
def test_prometheus_reads_metrics_and_rules(wounded: str, tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        skip_or_fail("promtool is not installed (Debian: prometheus)")
    checked = subprocess.run(["promtool", "check", "rules", str(MONITORING / "alerts.yml")], check=False)
    assert checked.returncode == 0
    for command in ("check", "top"):
        text = pulsar_meta_here(command, "--store", wounded, "-o", "openmetrics").stdout
        read = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (read.returncode, read.stderr) == (0, b"")

"""`-o openmetrics` of `check` and `top`, read with Prometheus's own parsers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
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
def damaged(capture: Capture, tmp_path: Path) -> str:
    """A store without the metadata of a ledger of the topic `plain`."""
    lines = (
        (capture("pulsar-4.2.4") / "metadata.ndjson").read_text(encoding="utf-8").splitlines(keepends=True)
    )
    remaining = [line for line in lines if json.loads(line)["path"] != ledger_path(25)]
    (tmp_path / "damaged.ndjson").write_text("".join(remaining), encoding="utf-8")
    return f"snapshot:{tmp_path}/damaged.ndjson"


def metrics(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]


def value(family: Metric, **labels: str) -> float:
    [sample_value] = [sample.value for sample in family.samples if sample.labels == labels]
    return sample_value


def test_findings_are_counted_by_code_severity_and_namespace(damaged: str, tmp_path: Path) -> None:
    file = tmp_path / "check.prom"
    done = as_text(pulsar_meta_here("check", "--store", damaged, "-o", "openmetrics", "--output", str(file)))
    assert done.returncode == 1
    families = metrics(file.read_text())
    listed = as_text(pulsar_meta_here("check", "--store", damaged, "-o", "json"))
    findings = json.loads(listed.stdout)
    by_code = families["pulsar_meta_check_findings"]
    assert sum(sample.value for sample in by_code.samples) == len(findings)
    damage = {"code": "ledger-without-metadata", "severity": "error", "namespace": "public/default"}
    assert value(by_code, **damage) == 1
    by_severity = families["pulsar_meta_check_findings_of_severity"]
    severities = Counter(finding["severity"] for finding in findings)
    # The capture has three cursors that some releases can't load.
    assert (severities["error"], severities["warning"]) == (1, 3)
    assert all(value(by_severity, severity=severity) == count for severity, count in severities.items())
    checked = json.loads(listed.stderr.splitlines()[-1])
    assert {noun: value(families[f"pulsar_meta_check_{noun}"]) for noun in checked["checked"]} == checked[
        "checked"
    ]
    assert value(families["pulsar_meta_check_not_checked"]) == len(checked["not_checked"])

    words = ("check", "--store", damaged, "-o", "openmetrics", "--severity", "error")
    selected = metrics(as_text(pulsar_meta_here(*words)).stdout)["pulsar_meta_check_findings_of_severity"]
    assert [(sample.labels, sample.value) for sample in selected.samples] == [({"severity": "error"}, 1)]


def test_sizes_equal_those_of_the_json_output(damaged: str) -> None:
    families = metrics(as_text(pulsar_meta_here("top", "--store", damaged, "-o", "openmetrics")).stdout)
    document = json.loads(as_text(pulsar_meta_here("top", "--store", damaged, "-o", "json")).stdout)
    assert value(families["pulsar_meta_store_values"]) == document["total"]["count"]
    assert value(families["pulsar_meta_store_biggest_value_bytes"]) == document["biggest"][0]["size"]
    for row in document["namespaces"]:
        name = {"namespace": row["namespace"]}
        assert value(families["pulsar_meta_store_namespace_stored_bytes"], **name) == row["size"]


def test_labels_are_few_and_the_documented_names_exist(damaged: str) -> None:
    text = "".join(
        as_text(pulsar_meta_here(command, "--store", damaged, "-o", "openmetrics")).stdout.replace(
            "# EOF\n", ""
        )
        for command in ("check", "top")
    )
    families = metrics(text + "# EOF\n")
    assert {
        label for family in families.values() for sample in family.samples for label in sample.labels
    } == LABELS
    documented = re.findall(
        r"pulsar_meta_\w+", "".join(path.read_text() for path in sorted(MONITORING.iterdir()))
    )
    assert documented
    assert set(documented) <= set(families)


def test_a_verdict_is_no_metric(damaged: str) -> None:
    done = as_text(
        pulsar_meta_here("check", "--store", damaged, "--before-upgrade", "4.0.7", "-o", "openmetrics")
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "choose another format" in done.stderr


def test_the_dashboard_lets_the_user_choose_the_data_source() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {"${datasource}"}


@pytest.mark.interop
def test_prometheus_reads_metrics_and_rules(damaged: str, tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        skip_or_fail("promtool", "promtool is not installed (Debian: prometheus)")
    checked = subprocess.run(["promtool", "check", "rules", str(MONITORING / "alerts.yml")], check=False)
    assert checked.returncode == 0
    for command in ("check", "top"):
        text = pulsar_meta_here(command, "--store", damaged, "-o", "openmetrics").stdout
        read = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (read.returncode, read.stderr) == (0, b"")

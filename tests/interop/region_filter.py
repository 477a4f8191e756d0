"""Runs beside a broker (`Cluster.call`): an EntryFilter for `region=us` that remembers its verdicts."""

from __future__ import annotations

from typing import Any

from jpype import JClass, JImplements, JOverride

from tests.servers.inside import broker

_verdicts: dict[str, bool] = {}


def nothing() -> dict[str, str]:
    """The broker needs no further settings for it."""
    return {}


def install() -> None:
    """Make it the only filter of the broker; subscriptions made from now on use it."""
    provider = JClass("org.apache.pulsar.broker.service.plugin.EntryFilterProvider")
    field = provider.class_.getDeclaredField("brokerEntryFilters")
    field.setAccessible(True)
    filters = JClass("java.util.List").of(_region_filter())
    field.set(broker().getBrokerService().getEntryFilterProvider(), filters)


def verdicts() -> dict[str, bool]:
    """Return whether each entry (`LEDGER:ENTRY`) that the broker let it see was accepted."""
    return dict(_verdicts)


def _region_filter() -> Any:
    interface = "org.apache.pulsar.broker.service.plugin.EntryFilter"
    result = JClass(f"{interface}$FilterResult")

    @JImplements(interface)
    class RegionFilter:
        @JOverride  # type: ignore[untyped-decorator]
        def filterEntry(self, entry: Any, context: Any) -> Any:
            pairs = context.getMsgMetadata().getPropertiesList()
            holds = any((pair.getKey(), pair.getValue()) == ("region", "us") for pair in pairs)
            _verdicts[f"{entry.getLedgerId()}:{entry.getEntryId()}"] = holds
            return result.ACCEPT if holds else result.REJECT

        @JOverride  # type: ignore[untyped-decorator]
        def close(self) -> None:
            """Nothing is open."""

    return RegionFilter()

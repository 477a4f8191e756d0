"""Runs in the JVM of each broker (`Cluster(inside=…)`): a load manager that heeds lookup properties.

It is ExtensibleLoadManagerImpl with two methods overridden: `assign` says what it was sent, `selectAsync`
chooses the broker of the same rack. Javassist, which is among Pulsar's jars, makes the subclass.
"""

from __future__ import annotations

from typing import Any, Final

from jpype import JImplements, JOverride, JProxy

OVERRIDDEN: Final = ("assign", "selectAsync")
_assigned: list[tuple[str, dict[str, str]]] = []


def define() -> dict[str, str]:
    """Define the class and return the setting that makes a broker use it."""
    from jpype import JClass

    factory = JClass("javassist.util.proxy.ProxyFactory")()
    factory.setSuperclass(JClass("org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"))
    chosen = {"isHandled": lambda method: str(method.getName()) in OVERRIDDEN}
    factory.setFilter(JProxy("javassist.util.proxy.MethodFilter", dict=chosen))
    factory.setHandler(_rack_handler())
    return {"loadManagerClassName": str(factory.createClass().getName())}


def assigned() -> list[tuple[str, dict[str, str]]]:
    """Return the topics that this broker was asked for, each with the properties that arrived."""
    return list(_assigned)


def _rack_handler() -> Any:
    @JImplements("javassist.util.proxy.MethodHandler")
    class RackHandler:
        @JOverride  # type: ignore[untyped-decorator]
        def invoke(self, manager: Any, method: Any, overridden: Any, arguments: Any) -> Any:
            # A broker's own lookups, for its heartbeat namespace, have none.
            sent = arguments[2].getProperties() or {}
            properties = {str(key): str(sent.get(key)) for key in sent}
            if method.getName() == "assign":
                topic = arguments[0]
                _assigned.append((str(topic.get()) if topic.isPresent() else "-", properties))
                return overridden.invoke(manager, arguments)
            return _select(manager, properties.get("rack"), lambda: overridden.invoke(manager, arguments))

    return RackHandler()


def _select(manager: Any, rack: str | None, otherwise: Any) -> Any:
    from jpype import JClass

    future, optional = JClass("java.util.concurrent.CompletableFuture"), JClass("java.util.Optional")

    def choose(brokers: Any) -> Any:
        for broker in brokers.entrySet():
            if rack is not None and broker.getValue().properties().get("lookup.rack") == rack:
                return future.completedFuture(optional.of(broker.getKey()))
        return otherwise()

    return manager.getBrokerRegistry().getAvailableBrokerLookupDataAsync().thenCompose(choose)

"""Where brokers listen: `pulsar://host:port,host:port` and `pulsar+ssl://…`.

Source: apache/pulsar ServiceURI.java (schemes, default ports, several hosts).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import UsageError

DEFAULT_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}

_host_re = re.compile(r"^(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/\[\]]+))(?::(?P<port>\d{1,5}))?$")


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One place where a broker or proxy listens on the binary protocol."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"pulsar{'+ssl' if self.tls else ''}://{host}:{self.port}"


def parse_service_url(url: str) -> list[BrokerAddress]:
    """Return the addresses of a service URL, in its order; UsageError where it is none."""
    scheme, separator, rest = url.partition("://")
    port = DEFAULT_PORTS.get(scheme)
    if not separator or port is None:
        raise UsageError(
            f"{url!r}: a broker's binary protocol is at pulsar://host:port or pulsar+ssl://host:port"
        )
    hosts = [host for host in re.split("[,;]", rest.split("/", 1)[0]) if host]
    if not hosts:
        raise UsageError(f"{url!r}: no host")
    return [_address(url, host, port, scheme == "pulsar+ssl") for host in hosts]


def _address(url: str, text: str, default_port: int, tls: bool) -> BrokerAddress:
    match = _host_re.match(text)
    port = int((match and match["port"]) or default_port)
    if not match or not 0 < port < 65536:
        raise UsageError(f"{url!r}: not host:port")
    return BrokerAddress(match["ipv6"] or match["host"], port, tls)

"""Policies of topics in the store (PIP-469), one JSON record for each topic and scope.

5.0.0-M1 has them at `/admin/topic-policies/SCOPE/TENANT/NAMESPACE/DOMAIN/NAME` (scope `global` or `local`).
The text of PIP-469 has the global ones at `/admin/topic-policies/…` without a scope, the local ones at
`/admin/local-policies/topic-policies/…`. Partitions share the record of their topic.

Source: apache/pulsar MetadataStoreTopicPoliciesService (5.0.0-M1), TopicPolicies, PIP-469.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NamedTuple

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName, decode_name

Scope = Literal["global", "local"]
ROOTS: Final = ("/admin/topic-policies", "/admin/local-policies/topic-policies")
_place_re = re.compile(
    r"/admin/(?:topic-policies(?:/(?P<scope>global|local))?|local-policies/(?P<local>topic-policies))"
    r"/(?P<tenant>[^/]+)/(?P<namespace>[^/]+)/(?P<domain>persistent|non-persistent|topic|segment)/(?P<name>[^/]+)"
)
# Members that are there without a policy. Those that end with `Set` say which others are there.
_NO_POLICIES: Final = ("isGlobal", "globalPolicies")


class PoliciesPlace(NamedTuple):
    """The topic and the scope of a record."""

    topic: TopicName
    scope: Scope


def policies_place(path: str) -> PoliciesPlace | None:
    """Return whose policies are stored at a path, None if it is another path."""
    match = _place_re.fullmatch(path)
    if match is None:
        return None
    try:
        name = decode_name(match["name"])
    except DecodeError:
        return None
    scope: Scope = "local" if match["local"] or match["scope"] == "local" else "global"
    return PoliciesPlace(TopicName(match["tenant"], match["namespace"], name, match["domain"]), scope)


def policy_names(record: Document) -> list[str]:
    """Return the names of the policies that a record sets."""
    names = (name for name in record if not name.endswith("Set") and name not in _NO_POLICIES)
    return [name for name in names if _is_set(record[name])]


def _is_set(value: Any) -> bool:
    return value is not None and value != {} and value != []

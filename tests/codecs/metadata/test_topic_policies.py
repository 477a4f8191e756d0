"""Policies of topics in the store, against the paths and bytes of 5.0.0-M1's own classes.

`MetadataStoreTopicPoliciesService.pathFor` made the paths, the cache of `TopicPolicies` made the bytes.
"""

from __future__ import annotations

import json

import pytest

from pulsar_meta.codecs.documents.document import decode_document
from pulsar_meta.codecs.documents.pulsar5_meaning import policy_names
from pulsar_meta.codecs.names import policies_place

# Retention, TTL and a limit of producers.
WRITTEN = (
    b'{"backLogQuotaMap":{},"subscriptionTypesEnabled":[],"isGlobal":false,"retentionPolicies":'
    b'{"retentionTimeInMinutes":60,"retentionSizeInMB":100},"messageTTLInSeconds":30,"maxProducerPerTopic":7,'
    b'"subscriptionPolicies":{},"globalPolicies":false,"replicatorDispatchRateSet":false,'
    b'"maxSubscriptionsPerTopicSet":false,"maxMessageSizeSet":false,"deduplicationSnapshotIntervalSecondsSet":false,'
    b'"inactiveTopicPoliciesSet":false,"offloadPoliciesSet":false,"maxUnackedMessagesOnConsumerSet":false,'
    b'"delayedDeliveryTickTimeMillisSet":false,"delayedDeliveryEnabledSet":false,'
    b'"delayedDeliveryMaxDelayInMillisSet":false,"maxUnackedMessagesOnSubscriptionSet":false,"backlogQuotaSet":false,'
    b'"persistentPolicySet":false,"retentionSet":true,"deduplicationSet":false,"messageTTLSet":true,'
    b'"subscriptionExpirationTimeInMinutesSet":false,"maxProducerPerTopicSet":true,"maxConsumerPerTopicSet":false,'
    b'"maxConsumersPerSubscriptionSet":false,"dispatchRateSet":false,"subscriptionDispatchRateSet":false,'
    b'"compactionThresholdSet":false,"publishRateSet":false,"subscribeRateSet":false}'
)


@pytest.mark.parametrize(
    ("path", "topic"),
    [
        (
            "/admin/topic-policies/global/public/default/persistent/orders",
            "persistent://public/default/orders",
        ),
        (
            "/admin/topic-policies/global/public/default/persistent/parted",
            "persistent://public/default/parted",
        ),
        (
            "/admin/topic-policies/global/public/default/topic/od+d%3An%C3%A4me",
            "topic://public/default/od d:näme",
        ),
        ("/admin/topic-policies/global/public/default/non-persistent/x", "non-persistent://public/default/x"),
        (
            "/admin/topic-policies/global/public/a.b-c_d=e/persistent/t.1-2",
            "persistent://public/a.b-c_d=e/t.1-2",
        ),
    ],
)
def test_paths_of_the_broker_name_their_topics(path: str, topic: str) -> None:
    place, local = policies_place(path), policies_place(path.replace("/global/", "/local/"))
    assert place is not None
    assert local is not None
    assert (str(place.topic), place.scope, local) == (topic, "global", (place.topic, "local"))


def test_paths_of_the_proposal_name_their_topics() -> None:
    places = [
        policies_place(f"{root}/public/default/persistent/orders")
        for root in ("/admin/topic-policies", "/admin/local-policies/topic-policies")
    ]
    assert [place and place.scope for place in places] == ["global", "local"]
    assert policies_place("/admin/topic-policies/local/public/default/persistent") is None
    assert policies_place("/admin/policies/public/default") is None


def test_only_policies_that_are_set_are_named() -> None:
    assert policy_names(json.loads(WRITTEN)) == [
        "retentionPolicies",
        "messageTTLInSeconds",
        "maxProducerPerTopic",
    ]
    assert policy_names({"deduplicationEnabled": False}) == ["deduplicationEnabled"]


def test_the_meaning_has_topic_scope_and_policies() -> None:
    path = "/admin/topic-policies/local/public/default/persistent/orders"
    document = decode_document(WRITTEN, source="test", path=path).document
    assert (document["kind"], document["meaning"]) == (
        "TopicPolicies",
        {
            "topic": "persistent://public/default/orders",
            "scope": "local",
            "policies": ["retentionPolicies", "messageTTLInSeconds", "maxProducerPerTopic"],
        },
    )

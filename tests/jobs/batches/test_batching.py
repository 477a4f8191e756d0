"""The batching rule of issue #16680, its condition as printed there, and its rejected alternative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.jobs.batches.batching import (
    RULES,
    Batch,
    Batcher,
    Batching,
    Breaks,
    OrderWatch,
    Outgoing,
    wrong_for,
)


def sent(*regions: str | None, **options: Any) -> list[Outgoing]:
    """Return a message of 10 bytes for each region; None is a message without the property."""
    return [
        Outgoing(number, {} if region is None else {"region": region}, 10, **options)
        for number, region in enumerate(regions)
    ]


def batched(messages: Sequence[Outgoing], batching: Batching) -> tuple[list[list[int]], Breaks, list[Batch]]:
    breaks = Breaks()
    batcher = Batcher(batching, breaks)
    batches = [batch for message in messages for batch in batcher.add(message)] + batcher.finish()
    return [[message.number for message in batch.messages] for batch in batches], breaks, batches


BY_REGION = Batching(("region",))


def test_only_messages_with_the_same_values_share_a_batch() -> None:
    numbers, breaks, _ = batched(sent("eu", "eu", "us", "eu", None, None), BY_REGION)
    assert numbers == [[0, 1], [2], [3], [4, 5]]
    assert breaks.reasons == {"properties": 3}
    assert breaks.keys == {"region": 3}


def test_an_absent_value_is_not_an_empty_one() -> None:
    assert batched(sent(None, ""), BY_REGION)[0] == [[0], [1]]


def test_each_differing_key_is_counted() -> None:
    messages = [
        Outgoing(0, {"a": "1", "b": "1"}, 1),
        Outgoing(1, {"a": "2", "b": "1"}, 1),
        Outgoing(2, {}, 1),
    ]
    _, breaks, _ = batched(messages, Batching(("a", "b")))
    assert breaks.keys == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("options", "limits", "numbers", "reason"),
    [
        ({}, {"max_messages": 2}, [[0, 1], [2, 3], [4]], "max-messages"),
        ({}, {"max_bytes": 25}, [[0, 1], [2, 3], [4]], "max-bytes"),
        ({}, {"max_bytes": 5}, [[0], [1], [2], [3], [4]], "max-bytes"),
        ({"alone": True}, {}, [[0], [1], [2], [3], [4]], "alone"),
        ({"flush": True}, {}, [[0], [1], [2], [3], [4]], "flush"),
    ],
)
def test_limits_end_a_batch(
    options: dict[str, Any], limits: dict[str, Any], numbers: list[list[int]], reason: str
) -> None:
    batches, breaks, _ = batched(sent(*["eu"] * 5, **options), Batching(("region",), **limits))
    assert batches == numbers
    assert set(breaks.reasons) == {reason}


def test_another_transaction_or_schema_ends_a_batch() -> None:
    messages = [
        Outgoing(0, {}, 1, transaction=(1, 1)),
        Outgoing(1, {}, 1, transaction=(1, 2)),
        Outgoing(2, {}, 1),
        Outgoing(3, {}, 1, schema=b"1"),
        Outgoing(4, {}, 1, schema=b"1"),
    ]
    numbers, breaks, _ = batched(messages, BY_REGION)
    assert numbers == [[0], [1], [2], [3, 4]]
    assert breaks.reasons == {"transaction": 2, "schema": 1}


def test_the_condition_as_printed_accepts_wrong_messages() -> None:
    messages = [
        Outgoing(0, {"region": "eu"}, 1, schema=b"1"),
        Outgoing(
            1, {"region": "us"}, 1, schema=b"1"
        ),  # accepted by sameSchema, although the properties are wrong
        Outgoing(
            2, {"region": "eu"}, 1, schema=b"2"
        ),  # accepted by sameProperties, although the schema is wrong
        Outgoing(3, {"region": "us"}, 1, schema=b"2"),  # neither
    ]
    numbers, breaks, batches = batched(messages, Batching(("region",), "as-proposed"))
    assert numbers == [[0, 1, 2], [3]]
    assert breaks.reasons == {"schema and properties": 1}
    assert wrong_for(batches[0], BY_REGION) == (True, True)
    assert wrong_for(batches[1], BY_REGION) == (False, False)
    one_schema, _, _ = batched(messages, Batching(("region",), "as-proposed", multi_schema=False))
    assert one_schema == [[0, 1, 2, 3]]


def test_a_batch_per_set_of_values_loses_the_order() -> None:
    numbers, _, batches = batched(sent("eu", "us", "eu", "us", "eu"), Batching(("region",), "by-properties"))
    assert numbers == [[0, 2, 4], [1, 3]]
    order = OrderWatch()
    for batch in batches:
        order.see(batch)
    assert order.left_behind == 2


@given(
    st.lists(st.sampled_from([None, "", "eu", "us"]), max_size=40),
    st.sampled_from(RULES),
    st.integers(1, 5),
    st.integers(5, 60),
)
def test_no_message_is_lost_and_no_limit_exceeded(
    regions: list[str | None], rule: Any, max_messages: int, max_bytes: int
) -> None:
    batching = Batching(("region",), rule, max_messages, max_bytes)
    numbers, _, batches = batched(sent(*regions), batching)
    assert sorted(number for batch in numbers for number in batch) == list(range(len(regions)))
    assert all(len(batch.messages) <= max_messages for batch in batches)
    assert all(batch.size <= max_bytes or len(batch.messages) == 1 for batch in batches)
    if rule != "as-proposed":
        assert not any(any(wrong_for(batch, batching)) for batch in batches)
    if rule != "by-properties":
        assert [number for batch in numbers for number in batch] == list(range(len(regions)))

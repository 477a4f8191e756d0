"""Names of topics as users write them, and the store paths of these topics."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import TopicName


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ("t", "persistent://public/default/t", "public/default/persistent/t"),
        ("a/b/we ird:n", "persistent://a/b/we ird:n", "a/b/persistent/we+ird%3An"),
        # Names of four parts are V1 names; further slashes belong to the topic's own name.
        ("persistent://a/b/c/d", "persistent://a/b/c/d", "a/b/c/persistent/d"),
        ("a/b/c/d", "persistent://a/b/c/d", "a/b/c/persistent/d"),
        ("persistent://a/b/c/d/e", "persistent://a/b/c/d/e", "a/b/c/persistent/d%2Fe"),
        ("segment://a/b/ü/0-7fff-3", "segment://a/b/ü/0-7fff-3", "a/b/segment/%C3%BC/0-7fff-3"),
    ],
)
def test_a_name_and_its_path_are_converted(text: str, name: str, path: str) -> None:
    topic = TopicName.parse(text)
    assert (str(topic), topic.path) == (name, f"/managed-ledgers/{path}")
    assert TopicName.parse(name) == topic == TopicName.from_path(topic.path)


@pytest.mark.parametrize("text", ["", "a/b", "a//t", "persistent://t", "kafka://a/b/c", "persistent://a/b/"])
def test_invalid_names_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        TopicName.parse(text)

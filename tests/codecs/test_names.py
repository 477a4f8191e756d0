"""Names of topics as people write them, and the paths that they stand for."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import TopicName


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ("t", "persistent://public/default/t", "public/default/persistent/t"),
        ("a/b/we ird:n", "persistent://a/b/we ird:n", "a/b/persistent/we+ird%3An"),
        # Four parts and more are a V1 name, and the slashes behind its namespace the topic's own.
        ("persistent://a/b/c/d", "persistent://a/b/c/d", "a/b/c/persistent/d"),
        ("a/b/c/d", "persistent://a/b/c/d", "a/b/c/persistent/d"),
        ("persistent://a/b/c/d/e", "persistent://a/b/c/d/e", "a/b/c/persistent/d%2Fe"),
        ("segment://a/b/ü/0-7fff-3", "segment://a/b/ü/0-7fff-3", "a/b/segment/%C3%BC/0-7fff-3"),
    ],
)
def test_a_name_and_its_path(text: str, name: str, path: str) -> None:
    topic = TopicName.parse(text)
    assert (str(topic), topic.path) == (name, f"/managed-ledgers/{path}")
    assert TopicName.parse(name) == topic == TopicName.from_path(topic.path)


@pytest.mark.parametrize("text", ["", "a/b", "a//t", "persistent://t", "kafka://a/b/c", "persistent://a/b/"])
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(UsageError):
        TopicName.parse(text)

"""Numbering the strings at many places of a buffer: equal strings get the same number, others never do."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.columns import words
from pulsar_meta.codecs.columns.words import Heads, number_texts

TEXTS = st.text("ab\0", max_size=20)
# Some strings share a prefix of one word or more.
STRINGS = TEXTS | TEXTS.map(lambda text: "12345678" + text)


@given(
    rows=st.lists(st.tuples(STRINGS, st.booleans(), st.integers(0, 3))), mixer=st.sampled_from((0, 1, None))
)
def test_each_row_has_the_number_of_its_string(rows: list[tuple[str, bool, int]], mixer: int | None) -> None:
    # With some mixers, many strings have the same hash.
    chosen = words._MIXER if mixer is None else np.uint64(mixer)
    data = b"".join(bytes(gap) + text.encode() for text, _, gap in rows) + bytes(words.MARGIN)
    sizes = np.array([len(text) for text, _, _ in rows], np.int64)
    gaps = np.array([gap for _, _, gap in rows], np.int64)
    present = np.array([is_present for _, is_present, _ in rows], bool)
    heads = Heads.within(data, np.cumsum(gaps + sizes) - gaps - sizes)
    with patch.object(words, "_MIXER", chosen):
        numbers, names = number_texts(heads, gaps, sizes, present)
    shown = [text for text, is_present, _ in rows if is_present]
    assert [names[number] for number in numbers[present].tolist()] == shown
    assert sorted(names) == sorted(set(shown) or {""})
    assert not numbers[~present].any()

"""JSON text that is shown, edited and written again changes only where it was edited."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.documents.document import decode_document, encode_document
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_edit import edit_json
from pulsar_meta.codecs.json_text import dumps, read_json, safe
from tests.nightly import examples

TRANSACTION = '{"state":"OPEN","timeout":60.000000000,"createdAt":1795292202.248324148}'
NUMBERS = st.sampled_from(
    [
        *(
            "0",
            "-0",
            "1",
            "1.0",
            "1.50",
            "1E5",
            "1e+5",
            "-1e-7",
            "1e400",
            "-1e400",
            "1e-400",
            "4.37E-5",
            "1.0E7",
        ),
        *(
            str(2**53),
            str(2**53 + 1),
            str(2**70),
            "9" * 5000,
            "1795292202.248324148",
            "60.000000000",
            "5e-324",
        ),
    ]
)
SPACE = st.sampled_from(["", "", "", " ", "\n  ", "\t", "\r\n"])
LETTERS = [r"\u00e9", "é", r"\ud800", r"\/", r"\u001F", "9007199254740993", "1", "", "a", "b", "c"]
STRINGS = st.sampled_from([f'"{letters}"' for letters in LETTERS])


@st.composite
def texts(draw: st.DrawFn, depth: int = 3) -> str:
    """Generate JSON text with everything that parsers normally lose."""
    kinds = ["number", "string", "word", "object", "list"] if depth else ["number", "string", "word"]
    match draw(st.sampled_from(kinds)):
        case "number":
            return draw(NUMBERS)
        case "string":
            return draw(STRINGS)
        case "word":
            return draw(st.sampled_from(["true", "false", "null"]))
        case "object":
            part = st.tuples(SPACE, STRINGS, SPACE, st.just(":"), SPACE, texts(depth - 1), SPACE)
            members = ["".join(draw(part)) for _ in range(draw(st.integers(0, 4)))]
            return "{" + (",".join(members) or draw(SPACE)) + "}"
    items = [f"{draw(SPACE)}{draw(texts(depth - 1))}{draw(SPACE)}" for _ in range(draw(st.integers(0, 4)))]
    return "[" + (",".join(items) or draw(SPACE)) + "]"


@st.composite
def values(draw: st.DrawFn) -> str:
    """Generate the JSON text of a value in a store: an object or a list, and whitespace."""
    text = draw(texts())
    assume(text[0] in "{[")
    return text + draw(SPACE)


def shown(text: str, path: str = "/admin/x") -> dict[str, Any]:
    """Return a text's document as `-o json` prints it."""
    decoded = decode_document(text.encode(), source="s", path=path)
    assert (decoded.error, decoded.same_bytes, decoded.document["kind"]) == (None, True, "Json")
    printed = dumps(decoded.document)
    json.loads(printed)
    document: dict[str, Any] = read_json(printed, literal=True)
    return document


def through_doubles(document: dict[str, Any]) -> dict[str, Any]:
    """Pass a document through a program that reads numbers as doubles and drops our own fields."""
    rounded: dict[str, Any] = json.loads(dumps(document), parse_int=float)
    rounded.pop("stored_text", None)
    return rounded


settle = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck), database=None
)


@settle
@given(text=values())
@example(text="[2e-05,1e+16,5e-324]")
def test_unedited_text_keeps_its_bytes(text: str) -> None:
    document = shown(text)
    assert encode_document(document).data == text.encode()
    assert encode_document(document, stored=text.encode()).data == text.encode()
    # Only the value is left, and its numbers were rounded.
    rounded = encode_document(through_doubles(document) | {"kind": "Json"}, stored=text.encode())
    assert rounded.data == text.encode()


@settle
@given(text=values(), data=st.data())
def test_an_edit_changes_nothing_else(text: str, data: st.DataObject) -> None:
    document = shown(text)
    places = list(containers(document["value"]))
    assume(places)
    edited = data.draw(st.sampled_from(places))
    if isinstance(edited, dict) and edited and data.draw(st.booleans()):
        del edited[data.draw(st.sampled_from(sorted(edited)))]
    elif isinstance(edited, dict):
        edited["new"] = [True, {"x": None}]
    elif edited and data.draw(st.booleans()):
        edited.pop(data.draw(st.integers(0, len(edited) - 1)))
    else:
        edited.insert(data.draw(st.integers(0, len(edited))), "new")
    try:
        result = encode_document(document).data
    except DecodeError as error:
        # The edit is ambiguous: the member occurs twice, or the number may have been a string.
        assert "--raw" in error.message or "write all digits" in error.message  # noqa: PT017
        return
    assert edit_json(result.decode(), document["value"]).text == result.decode()
    assert is_local_change(result.decode(), text)


def containers(value: Any) -> list[Any]:
    """Return the objects and lists of a value, starting with the value itself."""
    if not isinstance(value, (dict, list)):
        return []
    members = value.values() if isinstance(value, dict) else value
    return [value, *(inner for member in members for inner in containers(member))]


def is_local_change(new: str, old: str) -> bool:
    """Return True if two texts differ in one place only, which may be long in one of them."""
    prefix = next((at for at, (a, b) in enumerate(zip(new, old, strict=False)) if a != b), None)
    if prefix is None:
        return True
    suffix = next(
        at for at, (a, b) in enumerate(zip(new[::-1] + "\0", old[::-1] + "\1", strict=False)) if a != b
    )
    removed, added = len(old) - prefix - suffix, len(new) - prefix - suffix
    return min(removed, added) <= 3


@pytest.mark.parametrize(
    ("text", "edit", "result"),
    [
        (TRANSACTION, {"state": "ABORTED"}, TRANSACTION.replace("OPEN", "ABORTED")),
        (TRANSACTION, {"timeout": 61}, TRANSACTION.replace("60.000000000", "61")),
        ('{ "a" : 1 ,\n "b":2}\n', {"c": [1.5]}, '{ "a" : 1 ,\n "b":2 ,\n "c" : [1.5]}\n'),
        ('{\n  "a": 1E5\n}', {"b": "x"}, '{\n  "a": 1E5,\n  "b": "x"\n}'),
        ("{ }", {"b": "x"}, '{"b":"x"}'),
        ('{"a":9007199254740993,"b":1}', {"b": 2}, '{"a":9007199254740993,"b":2}'),
        ('{"a":9007199254740993}', {"a": "9007199254740995"}, '{"a":"9007199254740995"}'),
        ('{"a":1,"a":2,"b":-0}', {"b": -1}, '{"a":1,"a":2,"b":-1}'),
        ('\ufeff{"a":1e400}', {"b": None}, '\ufeff{"a":1e400,"b":null}'),
        (r'{"a":"\u00e9","b":[1.0, 2.0 ,3.0]}', {"b": [1.0, 3.0]}, r'{"a":"\u00e9","b":[1.0 ,3.0]}'),
        ('{"b":[1.0,3.0]}', {"b": [0, 1, 2, 3]}, '{"b":[0,1,2,3.0]}'),
        ('{"b":[1.0,3.0]}', {"b": [1, 2, 3]}, '{"b":[1.0,2,3.0]}'),
    ],
)
def test_an_edit_keeps_the_style_of_the_text(text: str, edit: dict[str, Any], result: str) -> None:
    value = safe(read_json(text.removeprefix("\ufeff"), literal=True)) | edit
    assert edit_json(text, value).text == result
    assert edit_json(result, value).text == result


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ('{"a":1,"a":2}', {"a": 3}, "value.a: the stored text has this member twice"),
        ('{"a":1,"a":2}', {}, "value.a: the stored text has this member twice"),
        ('{"a":9007199254740993}', {"b": "9007199254740993"}, "value.b: .* may be a number or a string"),
        (TRANSACTION, {"moved": 1795292202.2483242}, "value.moved: this may be 1795292202.248324148"),
        ('[{"a":0.10000000000000000001}]', [{"b": [0.1]}], r"value\[0\].b\[0\]: this may be 0.1000"),
    ],
)
def test_an_ambiguous_edit_is_refused(text: str, value: Any, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        edit_json(text, value)


def test_numbers_that_were_rounded_are_named() -> None:
    value = json.loads(TRANSACTION)
    edited = edit_json(TRANSACTION, value | {"state": "ABORTED"})
    assert edited.rounded == ("value.createdAt",)
    assert '"createdAt":1795292202.248324148' in edited.text
    exact = read_json(TRANSACTION, literal=True)
    assert edit_json(TRANSACTION, exact).rounded == ()
    changed = read_json('{"createdAt":1795292202.248324149}', literal=True)
    assert edit_json(TRANSACTION, exact | changed).text.endswith(":1795292202.248324149}")


def test_documents_show_numbers_unchanged() -> None:
    document = decode_document(TRANSACTION.encode(), source="s", path="/txn/id/1_0").document
    assert '"createdAt": 1795292202.248324148' in dumps(document)
    assert document["stored_text"] == TRANSACTION
    usual = decode_document(b'{"a":[1,2.5,"\xc3\xa9"]}', source="s", path="/x").document
    assert "stored_text" not in usual


def test_secrets_are_not_in_the_stored_text() -> None:
    for text in ('{"password": "geheim", "a": 1.0}', '{"password":"geheim","password":"","a":1}'):
        document = decode_document(text.encode(), source="s", path="/x").document
        assert "geheim" not in dumps(document)
        assert document["stored_text"] == {"redacted": True}
        with pytest.raises(DecodeError, match="--show-secrets"):
            encode_document(document)
    document["value"]["a"] = 2
    assert encode_document(document, stored=text.encode()).data == text.replace("1}", "2}").encode()


@pytest.mark.parametrize("text", ["{", 7, None, "NaN", "[" * 300 + "]" * 300])
def test_invalid_stored_text_is_refused(text: Any) -> None:
    document = {"kind": "Json", "value": {}, "stored_text": text}
    if text is None:
        assert encode_document(document).data == b"{}"
        return
    with pytest.raises(DecodeError, match="stored_text: "):
        encode_document(document)

from __future__ import annotations

from base64 import b64encode, encodebytes, urlsafe_b64encode

import pytest

from pulsar_meta.codecs.text_bytes import TEXT_FORMS, TextForm, any_base64, text_to_bytes

BYTES = bytes(range(256)) + b"\xfb\xff\xfe?>"


def go_quoted(data: bytes) -> bytes:
    """Quote bytes like Go's %q, which etcdctl prints with -w fields."""
    plain = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
    letters = (plain.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in data)
    return f'"{"".join(letters)}"'.encode()


@pytest.mark.parametrize("size", range(5))
def test_base64_of_either_alphabet_needs_no_padding_and_may_have_line_breaks(size: int) -> None:
    data = BYTES[: len(BYTES) - size]
    for text in (b64encode(data), urlsafe_b64encode(data), encodebytes(data)):
        assert any_base64(text) == any_base64(text.replace(b"=", b"")) == data
    assert text_to_bytes(b' "' + urlsafe_b64encode(data) + b'"\r\n', "base64") == data


@pytest.mark.parametrize("text", [b"AAAAA", b"AA=A", b"AAA==", b"A===", b"AAAA=", b"AA*A", "AAÄ".encode()])
def test_other_text_is_not_base64(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"padding|letters|base64"):
        any_base64(text)


def test_escapes_of_go_python_and_c_are_the_same_bytes() -> None:
    in_octal = "".join(f"\\{byte:03o}" for byte in BYTES).encode()
    for text in (go_quoted(BYTES), repr(BYTES).encode(), in_octal, in_octal + b"\n"):
        assert text_to_bytes(text, "escaped") == BYTES
    assert text_to_bytes(r"ä\u00e4\U0001f600\0".encode(), "escaped") == "ää😀\0".encode()


@pytest.mark.parametrize("text", [rb"\x0", rb"\q", b"end\\", rb"\ud800", rb"\400"])
def test_an_invalid_escape_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"escape|surrogates"):
        text_to_bytes(text, "escaped")


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_no_text_is_no_bytes(form: TextForm) -> None:
    assert text_to_bytes(b"\n", form) == b""

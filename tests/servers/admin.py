"""The part of a broker's admin interface (HTTP) that the tests need."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


class AdminError(Exception):
    """An error that the broker answered. `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


def ask(url: str, method: str, path: str, body: object = None, *, seconds: float = 60) -> Any:
    """Send a request to `URL/admin/v2/PATH`.

    Returns the JSON of the answer, or its text, or None if it is empty. Raises AdminError.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/admin/v2/{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            raise AdminError(error.code, error.read().decode(errors="replace")) from None
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text

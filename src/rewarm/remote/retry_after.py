"""For how long a server of HTTP wants to be left alone: its `Retry-After`, which obstore does not show.

Not promised: an answer. obstore 0.12 shows no header of an answer that is an error, nor does it keep to this one by
itself. So where a plain HTTP server says that it is asked too much, it is asked once more, for the head of the same
name, by the standard library; once a second at most, however many requests it turned away. Behind a proxy it is not
asked, and object stores are not, whose requests have to be signed: there rewarm waits by its own rule.
"""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import http.client
import ssl
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rewarm.remote.address import Address

STATUSES = (429, 503)

# Seconds. More is no answer to a question of this kind.
_LONGEST = 86_400.0
_TIMEOUT = 2.0
_AGAIN_AFTER = 1.0


class RetryAfter:
    """What the server at one address asks for. Safe for any number of threads; never raises.

    Args:
      address: of kind http or https.
      headers: that each request has.
    """

    def __init__(self, address: Address, headers: Mapping[str, str]) -> None:
        self._address = address
        self._headers = headers
        self._lock = threading.Lock()
        self._asked = -_AGAIN_AFTER
        self._seconds: float | None = None

    def seconds(self, name: str, timeout: float) -> float | None:
        """How long to wait; `None`: it does not say. Whoever asks beside another has the same answer."""
        with self._lock:
            now = time.monotonic()
            if now - self._asked >= _AGAIN_AFTER:
                self._seconds = None
                with contextlib.suppress(Exception):  # whatever it is, nobody needs to know
                    self._seconds = self._ask(name, min(_TIMEOUT, timeout))
                self._asked = time.monotonic()
            return self._seconds

    def _ask(self, name: str, timeout: float) -> float | None:
        address, parts = self._address, urlsplit(self._address.url)
        if timeout <= 0 or _has_proxy(address, parts.hostname or ""):
            return None
        if address.scheme == "https":
            context = ssl.create_default_context()
            if "root_certificate" in address.options:
                context.load_verify_locations(Path(address.options["root_certificate"]).expanduser())
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.netloc, timeout=timeout, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
        with contextlib.closing(connection):
            connection.request("HEAD", f"{parts.path.rstrip('/')}/{name}", headers=dict(self._headers))
            answer = connection.getresponse()
            said = answer.getheader("Retry-After") if answer.status in STATUSES else None
            return None if said is None else _as_seconds(said, answer.getheader("Date"))


def _has_proxy(address: Address, host: str) -> bool:
    if "proxy" in address.options:
        return True
    named = urllib.request.getproxies()
    return ("all" in named or address.scheme in named) and not urllib.request.proxy_bypass(host)


def _as_seconds(said: str, date: str | None) -> float | None:
    """RFC 9110, 10.2.3: seconds, or a date, which is taken by the server's own clock where it tells that."""
    said = said.strip()
    if said.isascii() and said.isdecimal():
        return min(_LONGEST, float(said[:9]))
    try:
        until = email.utils.parsedate_to_datetime(said)
        now = email.utils.parsedate_to_datetime(date) if date else datetime.datetime.now(datetime.UTC)
        return min(_LONGEST, max(0.0, (until - now).total_seconds()))
    except (ValueError, TypeError):
        return None

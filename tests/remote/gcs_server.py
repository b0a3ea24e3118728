"""Google's XML API as far as obstore uses it, by moto's S3 behind a shim: `python gcs_server.py PORT`.

The shim does what the two protocols spell differently: signatures (none are checked), metadata, and Google's
generations, by which a put says that there is to be no blob (`x-goog-if-generation-match: 0`).
https://cloud.google.com/storage/docs/xml-api/reference-headers
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

# What makes moto take a request for one to S3.
_AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=gcs/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
_CONDITION = "HTTP_X_GOOG_IF_GENERATION_MATCH"


class Shim:
    """A WSGI application in front of another."""

    def __init__(self, inner: Callable[..., Iterable[bytes]]) -> None:
        self._inner = inner
        self._next = itertools.count(1)
        self._generations: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        environ["HTTP_AUTHORIZATION"] = _AUTHORIZATION
        condition = environ.pop(_CONDITION, None)
        for name in [name for name in environ if name.startswith("HTTP_X_GOOG_META_")]:
            environ[f"HTTP_X_AMZ_META_{name.removeprefix('HTTP_X_GOOG_META_')}"] = environ.pop(name)
        if environ["REQUEST_METHOD"] not in ("PUT", "DELETE"):
            return self._inner(environ, self._numbered(environ["PATH_INFO"], start))
        with self._lock:  # a condition and its write are one
            return self._write(environ, start, condition)

    def _write(self, environ: dict[str, Any], start: Callable[..., Any], condition: str | None) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if condition is not None and condition != str(self._generations.get(path, 0)):
            start("412 Precondition Failed", [("Content-Length", "0")])
            return [b""]
        if environ["REQUEST_METHOD"] == "DELETE":
            self._generations.pop(path, None)
            return list(self._inner(environ, start))

        def started(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            if status.startswith("2"):
                self._generations[path] = next(self._next)
            return self._numbered(path, start)(status, headers, *rest)

        return list(self._inner(environ, started))

    def _numbered(self, path: str, start: Callable[..., Any]) -> Callable[..., Any]:
        def started(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            more = [("x-goog-generation", str(self._generations[path]))] if path in self._generations else []
            return start(status, [*headers, *more], *rest)

        return started


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), Shim(DomainDispatcherApplication(create_backend_app)), threaded=True)

"""What an obstore error means, as a kind of `RemoteError`.

Not promised: that every server's words are known. obstore has an exception for some outcomes and one for all others,
whose text alone tells a timeout from a status; the texts are those of obstore 0.12, and what is not found in one is a
plain `RemoteError`, which counts as a failure and changes nothing else. obstore shows no header of an answer, so
`Retry-After` is never known here (`retry_after.py`).

No text of an error is passed on: it holds the URL, which may be signed, and words of the server. A reason is made of a
status and of codes that are listed here.
"""

from __future__ import annotations

import re

from rewarm.remote.blobs import (
    TOO_LARGE,
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
)

_STATUS = re.compile(r"status code: (\d{3})\b")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")

# Of the S3 API, of Google's XML API, and of Azure's blob service, in this order.
_NO_PLACE = frozenset({"NoSuchBucket", "InvalidBucketName", "ContainerNotFound", "InvalidResourceName"})
_NO_BLOB = frozenset({"NoSuchKey", "BlobNotFound", "NoSuchVersion"})
_SLOW_DOWN = frozenset({"SlowDown", "RequestLimitExceeded", "Throttling", "TooManyRequests", "ServerBusy"})
_NO_RIGHT = {
    "ExpiredToken": "the credentials have expired",
    "InvalidToken": "the credentials are not valid",
    "TokenRefreshRequired": "the credentials have expired",
    "InvalidAccessKeyId": "the access key is not known",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "AuthenticationFailed": "the credentials are not valid",
    "AuthorizationHeaderMalformed": "the region or the credentials are wrong",
    "IllegalLocationConstraintException": "the region is wrong",
    "RequestTimeTooSkewed": "the clocks differ too much",
}

_REFUSALS = {
    401: "no valid credentials",
    403: "no right to do this",
    407: "no valid credentials for the proxy",
    507: "the remote is full",
}
_NOT_NOW = (408, 409, 412, 423, 425)
_NEVER = (501, 505, 507)

# Addresses and steps of obstore on its way to credentials: it asked a machine's own service, since nobody gave it any.
_CREDENTIALS = ("169.254.169.254", "performing token request", "/latest/api/token", "metadata.google.internal")

# What obstore (by reqwest) says about an exchange that went wrong, in the order in which it is looked for.
_EXCHANGES: tuple[tuple[str, str], ...] = (
    ("kind: Timeout", "no answer in time"),
    ("kind: Connect", "no connection"),
    ("kind: Interrupted", "the answer broke off"),
    ("kind: Body", "the answer broke off"),
    ("kind: Decode", "the answer broke off"),
    ("kind: Request", "the exchange broke off"),
    ("invalid list response", "its list cannot be read"),
)


def translate(error: Exception) -> RemoteError:
    """The kind of `error`, which obstore raised; never with its text."""
    text = str(error)
    if any(mark in text for mark in _CREDENTIALS):
        return RefusedError("no credentials were found")
    status, code = status_of(text), code_of(text)
    if (status in (404, 416) and code not in _NO_PLACE) or "Range request not supported" in text:
        # What obstore has when it takes up a body that broke off and finds another blob, or none, or no such service;
        # a blob that was missing from the start is a FileNotFoundError, which does not come here.
        return UnreachableError("the answer broke off")
    if status:
        return of_status(status, code)
    if isinstance(error, NotImplementedError):
        return RefusedError("this kind of remote cannot do that")
    return _without_status(error, text)


def of_status(status: int, code: str = "") -> RemoteError:
    """The kind of an answer that is none of 2xx.

    Args:
      status: of HTTP.
      code: the server's own code for it, empty where it sent none; one that is not known here is not repeated.
    """
    if code in _NO_PLACE:
        return NoSuchPlaceError("there is no such bucket")
    if status == 429 or code in _SLOW_DOWN:
        return ThrottledError(f"too many requests (status {status})")
    if status == 503:  # what several servers answer for too many, and all while they are out of service
        return ThrottledError("too many requests, or out of service (status 503)")
    if status == 413 or code in ("EntityTooLarge", "RequestBodyTooLarge"):
        return TooLargeError(TOO_LARGE)
    if status in _NOT_NOW or (status >= 500 and status not in _NEVER):
        return UnreachableError(f"not now (status {status})")
    return RefusedError(_NO_RIGHT.get(code) or f"{_REFUSALS.get(status, 'refused')} (status {status})")


def status_of(text: str) -> int:
    """The status in the text of an error; 0 where there is none."""
    found = _STATUS.search(text)
    return int(found[1]) if found is not None else 0


def code_of(text: str) -> str:
    """The code in the body of an answer, as S3, Google and Azure send it; empty where there is none."""
    found = _CODE.search(text)
    return found[1] if found is not None else ""


def names_a_missing_place(text: str) -> bool | None:
    """Whether a 404 means the bucket; `None` where its text does not say."""
    code = code_of(text)
    return True if code in _NO_PLACE else False if code in _NO_BLOB else None


def _without_status(error: Exception, text: str) -> RemoteError:
    if "kind: Builder" in text:
        return RefusedError("http:// is used only where the endpoint says so")
    if "without LOCATION" in text or "kind: Redirect" in text:
        return RefusedError("a redirect: the address, the region or the endpoint is wrong")
    if "Content-Length Header missing" in text:
        return RefusedError("it answers without a length")
    for mark, reason in _EXCHANGES:
        if mark in text:
            return UnreachableError(reason)
    if isinstance(error, OSError):
        return UnreachableError("an error of the operating system")
    return RemoteError(f"an unexpected answer ({type(error).__name__})")

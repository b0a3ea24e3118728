"""Blobs in an object store (S3, Google, Azure) or behind an HTTP server that takes GET, PUT and DELETE; by obstore.

Not promised: that `only_new` is enforced (several S3 servers take the condition and overwrite, HTTP has none), or that
a reader beside a writer sees a whole blob (object stores and nginx do that, some WebDAV servers do not).

obstore's synchronous verbs alone are used: its asynchronous ones can abort a process that exits. Its client does not
survive a fork. Whoever makes `ObjectBlobs` asks nobody and imports nothing; the first verb does.

A missing bucket and a missing blob are one status (404). Most servers name which in the answer; where one does not,
the bucket is looked at once, and that look is remembered. On HTTP every 404 is a missing blob.

A server of HTTP that refuses a name as no name may be a cache for Bazel (`bazel.py`): unless the address says which it
is, that is looked at with one request, and what was asked is asked again.

What gives no answer, or says "not now", is asked once more, unless its time is up; what says that it is asked too often
is not, but a server of HTTP for how long it wants to be left alone (`retry_after.py`).

Races: two threads whose verbs are the first both find no store, and one makes it under the lock. `close` beside a verb
leaves that verb its store until it is done.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rewarm.remote import bazel
from rewarm.remote.address import Address
from rewarm.remote.blobs import (
    TOO_LARGE,
    BlobInfo,
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
    check_name,
)
from rewarm.remote.object_errors import code_of, names_a_missing_place, status_of, translate
from rewarm.remote.object_stores import Meta, Result, Store, headers, load, open_store
from rewarm.remote.retry_after import RetryAfter

T = TypeVar("T")

_PAGE = 1000
_MOMENT = 0.1
# What an HTTP server answers that does not know PROPFIND.
_NO_LISTS = (400, 405, 501)
_NO_LIST = "this server cannot list"
# How the reasons begin for which nothing was done: what asks for `only_new` may be repeated for no other.
_NOT_DONE = ("not now", "no connection")
_BAZEL_ADVICE = "if it is a cache for Bazel, say layout=bazel"
# obstore's exceptions, by name, so that nothing of it is imported here.
_THERE_IS_ONE = ("AlreadyExistsError", "PreconditionError")


class ObjectBlobs:
    """The blobs at an address of kind s3, gs, az, http or https; see `Blobs` for the verbs.

    A verb takes at most the address's deadline, and twice that where a first request failed just before its half.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._web = address.scheme in ("http", "https")
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._place_is_there = self._web
        # obstore's HTTP lists blobs by their whole path, its object stores by what follows their prefix.
        self._above = f"{address.path}/" if self._web and address.path else ""
        said = address.options.get(bazel.OPTION) if self._web else bazel.PLAIN
        # Whether it has the layout of a cache for Bazel; `None` where that is still to be found out.
        self._bazel = None if said is None else said == bazel.BAZEL
        # Whether a put may ask for `only_new`; off for good once the remote refused the question itself.
        self._asks = not self._web
        self._retry_after = RetryAfter(address, headers(address)) if self._web else None

    @property
    def place(self) -> str:
        """The address, without query and credentials."""
        return self._address.url

    def __repr__(self) -> str:
        return f"ObjectBlobs({self.place!r})"

    def prepare(self) -> None:
        """Import the client, and what it needs for credentials: not the server's time. Nothing is asked."""
        load(self._address)

    # -- the verbs ---------------------------------------------------------------------------------------------

    def get(self, name: str, *, limit: int) -> bytes | None:
        """The bytes of a blob; its length is looked at before its body is read; see `Blobs.get`."""
        check_name(name)
        store = self._opened()
        return self._in_its_layout(store, lambda: self._once_more(name, lambda: self._get(store, name, limit)))

    def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
        """Make `data` the blob, in one request; see `Blobs.put`."""
        check_name(name)
        store = self._opened()
        if only_new and self._asks:
            with contextlib.suppress(_NotAskableError):
                return self._once_more(name, lambda: self._create(store, name, data), _NOT_DONE)
        try:
            self._in_its_layout(store, lambda: self._once_more(name, lambda: self._overwrite(store, name, data)))
        except NoSuchPlaceError:
            if not self._web:
                raise
            # Of two that make the folders above their blobs at the same moment one is told that they are not there.
            time.sleep(_MOMENT)
            self._overwrite(store, name, data)
        return True

    def delete(self, name: str) -> None:
        """Remove a blob; see `Blobs.delete`."""
        check_name(name)
        store = self._opened()
        self._in_its_layout(store, lambda: self._once_more(name, lambda: self._delete(store, name)))

    def scan(self, prefix: str) -> Iterator[BlobInfo]:
        """The blobs under a prefix, page by page; what has no name of a blob is passed over; see `Blobs.scan`."""
        check_name(prefix)
        if self._bazel:
            raise RefusedError(_NO_LIST)
        store = self._opened()
        return self._scanned(store, prefix)

    def close(self) -> None:
        """Let go of the client and its connections; the next verb makes another."""
        with self._lock:
            self._store = None

    # -- how ---------------------------------------------------------------------------------------------------

    def _opened(self) -> Store:
        store = self._store
        if store is None:
            with self._lock:
                store = self._store
                if store is None:
                    store = self._store = open_store(self._address)
        return store

    def _in_its_layout(self, store: Store, work: Callable[[], T]) -> T:
        """Do it, and once more where the server turns out to be a cache for Bazel."""
        try:
            return work()
        except _BadNameError as error:
            if self._bazel is not None or not self._is_bazels(store):
                raise RefusedError(error.reason) from None
            self._bazel = True
        return work()

    def _once_more(self, name: str, work: Callable[[], T], reasons: tuple[str, ...] = ("",)) -> T:
        """Do it, and again where the answer is missing for a reason that begins with one of these, if there is time."""
        since = time.monotonic()
        for last in (False, True):
            try:
                return work()
            except ThrottledError as error:
                raise self._with_patience(error, name, since) from None
            except UnreachableError as error:
                took = time.monotonic() - since
                if last or took > self._address.deadline / 2 or not error.reason.startswith(reasons):
                    raise
            time.sleep(_MOMENT / 2)
        raise AssertionError

    def _with_patience(self, error: ThrottledError, name: str, since: float) -> ThrottledError:
        """The same, with how long the server wants to be left alone, where it says so."""
        if self._retry_after is None or error.retry_after is not None:
            return error
        left = self._address.deadline - (time.monotonic() - since)
        return ThrottledError(error.reason, self._retry_after.seconds(self._path(name), left))

    def _is_bazels(self, store: Store) -> bool:
        """Whether it knows a name of Bazel's, be it that there is nothing."""
        try:
            store.get(bazel.name_of("layout"))
        except FileNotFoundError:
            return True
        except Exception as error:  # noqa: BLE001 - as in `get`
            if status_of(str(error)):
                self._bazel = False
            return False
        return True

    def _path(self, name: str) -> str:
        return bazel.name_of(name) if self._bazel else name

    def _get(self, store: Store, name: str, limit: int) -> bytes | None:
        wraps = bool(self._bazel)
        try:
            result = store.get(self._path(name))
            body = _body(result, limit + bazel.MORE if wraps else limit)
        except FileNotFoundError as error:
            self._check_place(error)
            return None
        except RemoteError:
            raise
        except Exception as error:  # noqa: BLE001 - obstore raises built-in errors of many kinds
            raise self._kind_of(error) from None
        data = bazel.unwrapped(body) if wraps else body
        if len(data) > limit:
            raise TooLargeError("more bytes than the reader wants")
        return data

    def _delete(self, store: Store, name: str) -> None:
        try:
            store.delete(self._path(name))
        except FileNotFoundError as error:
            self._check_place(error)
        except Exception as error:  # noqa: BLE001 - as in `get`
            raise self._kind_of(error) from None

    def _kind_of(self, error: Exception) -> RemoteError:
        text = str(error)
        if not self._web or status_of(text) != bazel.BAD_NAME:
            return translate(error)
        if bazel.TOO_LARGE_THERE in text:
            return TooLargeError(TOO_LARGE)
        return translate(error) if self._bazel else _BadNameError(f"{translate(error).reason}; {_BAZEL_ADVICE}")

    def _create(self, store: Store, name: str, data: bytes) -> bool:
        """Put on the condition that there is none; `_NotAskableError` where the remote does not know the condition."""
        try:
            store.put(name, data, mode="create", use_multipart=False)
        except Exception as error:  # noqa: BLE001 - as in `get`
            if type(error).__name__ in _THERE_IS_ONE:
                return False
            if _does_not_know_the_condition(error):
                self._asks = False
                raise _NotAskableError from None
            raise self._failed_put(error) from None
        return True

    def _overwrite(self, store: Store, name: str, data: bytes) -> None:
        try:
            body = bazel.wrapped(data) if self._bazel else data
            store.put(self._path(name), body, mode="overwrite", use_multipart=False)
        except Exception as error:  # noqa: BLE001 - as in `get`
            raise self._failed_put(error) from None

    def _failed_put(self, error: Exception) -> RemoteError:
        if not self._web:
            return NoSuchPlaceError("there is no such bucket") if status_of(str(error)) == 404 else translate(error)
        # A conflict, in WebDAV, is a folder that is missing. obstore makes those above a blob, none of the address's.
        if status_of(str(error)) in (404, 409):
            return NoSuchPlaceError("there is no such folder")
        return self._kind_of(error)

    def _scanned(self, store: Store, prefix: str) -> Iterator[BlobInfo]:
        try:
            page, pages = self._once_more(prefix, lambda: self._first_page(store, prefix))
            while page is not None:
                yield from _infos(page, prefix, self._above)
                page = self._page(pages)
        except FileNotFoundError as error:
            self._check_place(error)  # WebDAV has no empty folders that nobody made
        except RemoteError:
            raise
        except Exception as error:  # noqa: BLE001 - as in `get`
            raise self._failed_scan(error) from None

    def _first_page(self, store: Store, prefix: str) -> tuple[Sequence[Meta] | None, Iterator[Sequence[Meta]]]:
        pages = iter(store.list(prefix, chunk_size=_PAGE))  # one that failed once is at its end
        return self._page(pages), pages

    def _page(self, pages: Iterator[Sequence[Meta]]) -> Sequence[Meta] | None:
        """The next page; `None`: there is none."""
        try:
            return next(pages, None)
        except FileNotFoundError:
            raise
        except Exception as error:  # noqa: BLE001 - as in `get`
            raise self._failed_scan(error) from None

    def _failed_scan(self, error: Exception) -> RemoteError:
        kind = translate(error)
        if self._web and (status_of(str(error)) in _NO_LISTS or type(kind) is RemoteError):
            return RefusedError(_NO_LIST)
        return kind

    def _check_place(self, error: FileNotFoundError) -> None:
        """After a 404: raise where it means that there is no bucket."""
        if self._place_is_there:
            return
        missing = names_a_missing_place(str(error))
        if missing is None:
            missing = self._look_at_the_place()
        if missing:
            raise NoSuchPlaceError("there is no such bucket") from None
        self._place_is_there = True

    def _look_at_the_place(self) -> bool:
        """Whether the bucket is missing, by asking for its list; whoever may not list is not told, and goes on."""
        try:
            next(iter(self._opened().list(None, chunk_size=1)), None)
        except FileNotFoundError:
            return True
        except Exception as error:  # noqa: BLE001 - as in `get`
            return isinstance(translate(error), NoSuchPlaceError)
        return False


class _BadNameError(RefusedError):
    """The server says that a name is none."""


class _NotAskableError(Exception):
    """The remote refused a condition, not the put."""


def _does_not_know_the_condition(error: Exception) -> bool:
    """Whether a put failed for its condition: S3 answers 501 NotImplemented for a header that it does not know."""
    text = str(error)
    return isinstance(error, NotImplementedError) or code_of(text) == "NotImplemented" or status_of(text) == 501


def _body(result: Result, limit: int) -> bytes:
    size = result.meta["size"]
    if size > limit:
        raise TooLargeError("more bytes than the reader wants")
    # No more can come: the length is that of the answer's own header, and nothing is unpacked on the way.
    data = bytes(result.bytes())
    if len(data) != size:
        raise UnreachableError("the answer broke off")
    return data


def _infos(page: Sequence[Meta], prefix: str, above: str) -> Iterator[BlobInfo]:
    for meta in page:
        name = meta["path"].removeprefix(above)
        if name.startswith(f"{prefix}/") and _is_name(name):
            yield BlobInfo(name, meta["size"], meta["last_modified"].timestamp())


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except ValueError:
        return False
    return True

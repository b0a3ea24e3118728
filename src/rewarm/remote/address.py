"""One tier as the user spells it: a URL whose query holds the settings of the tier and the options of its client.

Not promised: that there is anything at the address, or that the client knows what to do with an option's value.

    s3://bucket/prefix?trust=require&write=no&region=eu-west-1&endpoint=http://127.0.0.1:9000

A comma divides two tiers. In the query "+" is a plus sign, since secrets have them; a space is "%20", and what divides
things is spelled "%26" (&), "%2C" (,), "%40" (@), "%23" (#). Credentials (`user:password@`, or options) are kept apart
from the URL, and no text that is made here shows one: neither `str`, `repr`, nor an error. An error that cannot be sure
what a piece of the text is does not repeat it: a password with a "/" in it is easily taken for a host and a path.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from rewarm import setting_values
from rewarm.remote import bazel
from rewarm.remote.whereabouts import whereabouts

TRUST = ("require", "verify", "store")
ERRORS = ("ignore", "warn", "fail")
RANKS = ("first", "all")
LAYOUTS = (bazel.BAZEL, bazel.PLAIN)
DEADLINE = 5.0

_SETTINGS = ("trust", "write", "ranks", "deadline", "errors")

# Another deadline is a mistake: a program would wait for minutes, or no server could ever answer in time.
_SHORTEST, _LONGEST = 0.05, 600.0

_CLIENT = ("proxy", "root_certificate")
_S3 = (
    "region endpoint access_key_id secret_access_key session_token profile virtual_hosted skip_signature "
    "unsigned_payload request_payer server_side_encryption sse_kms_key_id sse_bucket_key_enabled "
    "sse_customer_key_base64 role_arn role_session_name web_identity_token_file sts_endpoint metadata_endpoint "
    "imdsv1_fallback checksum_algorithm s3_express"
)
_GS = "endpoint service_account service_account_key application_credentials bearer_token skip_signature"
_AZ = (
    "account_name account_key sas_key token endpoint client_id client_secret tenant_id authority_host "
    "federated_token_file msi_endpoint object_id msi_resource_id use_azure_cli use_emulator use_fabric_endpoint "
    "skip_signature credential_type encryption_key"
)
_REDIS = "username password db ttl prefix ssl_ca_certs ssl_certfile ssl_keyfile ssl_cert_reqs ssl_check_hostname"

# What may be shown. Whatever is not named here is a secret, so that an option that is new is not shown by mistake.
_PLAIN = frozenset(_SETTINGS) | {
    *("region", "endpoint", "profile", "virtual_hosted", "skip_signature", "unsigned_payload", "request_payer"),
    *("server_side_encryption", "sse_bucket_key_enabled", "role_arn", "role_session_name", "sts_endpoint"),
    *("metadata_endpoint", "imdsv1_fallback", "s3_express", "checksum_algorithm", "account_name", "authority_host"),
    *("msi_endpoint", "use_azure_cli", "use_emulator", "use_fabric_endpoint", "credential_type", "root_certificate"),
    *("username", "db", "ttl", "prefix", "ssl_cert_reqs", "ssl_check_hostname", "layout"),
}


class _Kind(NamedTuple):
    """A kind of remote.

    Attributes:
      scheme: its one name.
      options: the names that its client knows.
      user, password: the options that `user:password@` are moved to; empty where a URL of this kind has none.
    """

    scheme: str
    options: tuple[str, ...]
    user: str = ""
    password: str = ""


def _kind(scheme: str, options: str, *more: str) -> _Kind:
    return _Kind(scheme, (*options.split(), *(_CLIENT if scheme not in ("redis", "rediss", "file") else ())), *more)


_KINDS: dict[str, _Kind] = {
    kind.scheme: kind
    for kind in (
        _kind("s3", _S3, "access_key_id", "secret_access_key"),
        _kind("gs", _GS),
        _kind("az", _AZ, "account_name", "account_key"),
        _kind("http", "token username password layout", "username", "password"),
        _kind("https", "token username password layout", "username", "password"),
        _kind("redis", _REDIS, "username", "password"),
        _kind("rediss", _REDIS, "username", "password"),
        _kind("file", ""),
    )
}
_ALIASES = {
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
    "valkey": "redis",
    "valkeys": "rediss",
}
SCHEMES = ("s3", "gs", "az", "azure", "abfs", "abfss", "http", "https", "redis", "rediss", "valkey", "valkeys", "file")

_AZURE_DOMAINS = ("dfs.core.windows.net", "blob.core.windows.net")

_BUCKET = re.compile(r"[0-9A-Za-z$][0-9A-Za-z._-]*")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::[0-9]{1,5})?")
_PATH = re.compile(r"(?:/[0-9A-Za-z_.~=+%!$'(),;*:-]*)*")
_LAST_PORT = 65535
_OPTION_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_SHOWABLE = re.compile(r"[0-9A-Za-z_./~ -]{1,80}")


@dataclass(frozen=True, repr=False)
class Address:
    """One tier. No text of it shows a secret; its fields `options` holds them.

    Attributes:
      scheme: "s3", "gs", "az", "http", "https", "redis", "rediss" or "file": aliases are resolved.
      url: as it was spelled, without query and credentials; for a kind that has aliases, by its one name.
      trust: what an entry must prove: "require" a good signature, "verify" one where there is one, "store" nothing.
      write: whether this tier is written to.
      ranks: which processes of a job of several write: the "first", as JAX has it, or "all".
      deadline: seconds that one operation may take.
      errors: what an operation that fails does: "ignore", "warn" or "fail" (in strict mode).
      options: everything else, for the client; secrets among them.
    """

    scheme: str
    url: str
    trust: str = "require"
    write: bool = True
    ranks: str = "first"
    deadline: float = DEADLINE
    errors: str = "warn"
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def identity(self) -> str:
        """What tells it from every other place, such as one bucket's name at two endpoints, without secrets."""
        return whereabouts(self.scheme, self.url, self.options)

    @property
    def host(self) -> str:
        """The bucket, container, or host and port; empty for a folder."""
        return urlsplit(self.url).netloc

    @property
    def path(self) -> str:
        """What follows the host, decoded: a prefix without slashes at its ends; for a folder the absolute path."""
        path = unquote(urlsplit(self.url).path)
        return path if self.scheme == "file" else path.strip("/")

    @property
    def keeps_only_new(self) -> bool | None:
        """Whether servers of this kind leave a blob that is there when a put says so; `None`: some do, as of S3."""
        if self.scheme in ("http", "https"):
            return False
        return True if self.scheme in ("redis", "rediss", "file") else None

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"Address({self.describe()!r})"

    def describe(self) -> str:
        """The address with its settings and options; the value of an option that may be a secret is "***"."""
        said = [f"trust={self.trust}", f"write={'yes' if self.write else 'no'}", f"deadline={self.deadline:g}"]
        said += [f"errors={self.errors}", *(["ranks=all"] if self.ranks == "all" else [])]
        said += [f"{name}={value if name in _PLAIN else '***'}" for name, value in sorted(self.options.items())]
        return f"{self.url}?{'&'.join(said)}"


def parse_list(text: str) -> tuple[Address, ...]:
    """The tiers that commas divide, in order; empty parts are passed over.

    Raises:
      ValueError: one of them is not an address; see `parse`.
    """
    return tuple(parse(part) for part in text.split(",") if part.strip())


def parse(text: str) -> Address:
    """The tier that `text` spells.

    Raises:
      ValueError: it is none; one sentence that says what is wrong, and what would be right.
    """
    text = text.strip()
    kind, written = _kind_of(text)
    rest, mark, query = text.partition("?")
    _check_dividers(kind, rest, query)
    user, password, netloc, path = _parts(kind, written, rest)
    shown = f"{kind.scheme}://{netloc}{path}"
    values = _query(kind, shown, query if mark else "")
    _credentials(kind, shown, values, user, password)
    if written in ("abfs", "abfss") and user and not password:
        values["account_name"] = values.get("account_name", user)
    return _address(kind, shown, values)


def _check_dividers(kind: _Kind, rest: str, query: str) -> None:
    """Refuse an "@" or "#" where none can be: then nobody knows what is a host here, and what is half a password."""
    behind = rest.partition("://")[2].partition("/")[2] + query
    for letter, spelled in (("@", "%40"), ("#", "%23")):
        if letter in behind or (letter == "#" and "#" in rest):
            raise ValueError(
                f"{kind.scheme}:// takes no {letter!r} in a path, a password or a value, found one; spell it {spelled}"
                ' (and "/" in a password %2F, "?" %3F)'
            )


def _kind_of(text: str) -> tuple[_Kind, str]:
    scheme, mark, _ = text.partition("://")
    scheme = scheme.lower()
    if not mark:
        raise ValueError(_no_scheme(text))
    kind = _KINDS.get(_ALIASES.get(scheme, scheme))
    if kind is None:
        found = repr(scheme) if _SHOWABLE.fullmatch(scheme) else "another one"
        raise ValueError(f"a remote starts with one of {_one_of(SCHEMES)}, found {found}{_closest(scheme, SCHEMES)}")
    return kind, scheme


def _no_scheme(text: str) -> str:
    hint = ""
    if _SHOWABLE.fullmatch(text):
        hint = f", found {text!r}" + (f"; a shared folder is file://{text}" if text.startswith("/") else "")
    return f"a remote is a URL such as s3://bucket/prefix or file:///shared/dir{hint}"


def _parts(kind: _Kind, written: str, rest: str) -> tuple[str, str, str, str]:
    """User and password (decoded), host, and path; for `abfs://container@account…` the user is the account."""
    authority, _, path = rest.partition("://")[2].partition("/")
    userinfo, at, netloc = authority.rpartition("@")
    path = f"/{path}".rstrip("/")
    if written in ("abfs", "abfss") and at:
        netloc, userinfo = userinfo, _account(netloc)
    user, _, password = userinfo.partition(":")
    _check_place(kind, netloc, path)
    return unquote(user), unquote(password), netloc, path


def _account(host: str) -> str:
    account, _, domain = host.partition(".")
    if domain not in _AZURE_DOMAINS or not _BUCKET.fullmatch(account):
        raise ValueError(
            f"abfs:// is followed by container@account and one of {_one_of(_AZURE_DOMAINS)}, found another host;"
            " elsewhere it is az://container?account_name=NAME&endpoint=https://HOST"
        )
    return account


def _check_place(kind: _Kind, netloc: str, path: str) -> None:
    """Refuse what cannot be a place, without repeating it: a secret with a "/" in it ends up here."""
    if kind.scheme == "file":
        _check_folder(netloc, path)
        return
    named = kind.scheme in ("s3", "gs", "az")
    what = "a bucket" if named else "a host, and perhaps a port"
    if not (_BUCKET if named else _HOST).fullmatch(netloc):
        raise ValueError(
            f"{kind.scheme}:// is followed by {what}, found {'nothing' if not netloc else 'something else'}"
            ' (in a user name or password "/" is spelled %2F and "@" %40)'
        )
    if not named and (wrong := _wrong_with_host(netloc)):
        raise ValueError(f"{kind.scheme}:// is followed by {what}, found {wrong}")
    if not _PATH.fullmatch(path) or _bad_segment(path):
        raise ValueError(
            f"{kind.scheme}://{netloc} is followed by names between slashes, none of them '.' or '..', found something"
            " else (other letters are spelled with %)"
        )


def _wrong_with_host(netloc: str) -> str:
    """What is wrong with a host and port that look like some, or ""; else whoever divides the URL later falls over."""
    host, mark, port = netloc.rpartition(":") if not netloc.endswith("]") else (netloc, "", "")
    host = host if mark else netloc
    if mark and not 0 < int(port) <= _LAST_PORT:
        return f"port {port} (ports go from 1 to {_LAST_PORT})"
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            return "something between brackets that is no IPv6 address"
    return ""


def _check_folder(netloc: str, path: str) -> None:
    if netloc not in ("", "localhost"):
        raise ValueError("a folder is spelled file:///shared/dir, with three slashes, found two")
    if not path or not path.isprintable() or not unquote(path).isprintable():
        found = "letters that cannot be printed" if path else "no path"
        raise ValueError(f"a folder is spelled file:///shared/dir, found {found}")


def _bad_segment(path: str) -> bool:
    segments = [unquote(segment) for segment in path.split("/")[1:]]
    return any(segment in ("", ".", "..") or "/" in segment or not segment.isprintable() for segment in segments)


def _query(kind: _Kind, shown: str, query: str) -> dict[str, str]:
    """The parts of the query, decoded, each of them known."""
    values: dict[str, str] = {}
    good = (*_SETTINGS, *kind.options)
    for part in filter(None, query.split("&")):
        name, mark, value = part.partition("=")
        if not mark or not _OPTION_NAME.fullmatch(name):
            raise ValueError(f'{shown} takes name=value, found another part (inside a value "&" is spelled %26)')
        if name not in good:
            # Behind a secret, this may be the rest of it.
            found = repr(name) if _PLAIN.issuperset(values) else "of such a name"
            close = _closest(name, good) or "."
            raise ValueError(f"{shown} has no option {found}{close} Its options are {_one_of(good)}")
        if name in values:
            raise ValueError(f"{shown} takes {name!r} once, found it twice")
        values[name] = _decoded(shown, name, value)
    return values


def _decoded(shown: str, name: str, value: str) -> str:
    text = unquote(value, errors="replace")
    if not text or not text.isprintable():
        found = "none" if not text else "one that has letters which cannot be printed"
        raise ValueError(f"{shown} takes a value for {name!r}, found {found}")
    return text


def _credentials(kind: _Kind, shown: str, values: dict[str, str], user: str, password: str) -> None:
    """Move `user:password@` to the options that mean the same."""
    for name, value in ((kind.user, user), (kind.password, password)):
        if not value:
            continue
        if not name:
            raise ValueError(f"{shown} takes no user name and password, found one before the '@'")
        if not value.isprintable():
            raise ValueError(f"{shown} takes a {name!r} of letters that can be printed, found others before the '@'")
        if name in values and values[name] != value:
            raise ValueError(f"{shown} takes {name!r} once, found it in the query and before the '@'")
        values[name] = value
    endpoint = values.get("endpoint")
    if endpoint is not None and not _is_endpoint(endpoint):
        raise ValueError(f"{shown} takes for 'endpoint' http:// or https:// with a host, without credentials")


def _is_endpoint(text: str) -> bool:
    scheme, mark, rest = text.partition("://")
    host, _, path = rest.partition("/")
    return (
        bool(mark)
        and scheme in ("http", "https")
        and bool(_HOST.fullmatch(host))
        and not _wrong_with_host(host)
        and bool(_PATH.fullmatch(f"/{path}"))
    )


def _address(kind: _Kind, shown: str, values: dict[str, str]) -> Address:
    try:
        write = setting_values.as_bool(values.pop("write", "yes"))
    except ValueError as error:
        raise ValueError(f"{shown} takes for 'write' {error}") from None
    if bazel.OPTION in values:
        values[bazel.OPTION] = _choice(shown, bazel.OPTION, values[bazel.OPTION], LAYOUTS)
    return Address(
        scheme=kind.scheme,
        url=shown,
        trust=_choice(shown, "trust", values.pop("trust", "require"), TRUST),
        write=write,
        ranks=_choice(shown, "ranks", values.pop("ranks", "first"), RANKS),
        deadline=_deadline(shown, values.pop("deadline", f"{DEADLINE}")),
        errors=_choice(shown, "errors", values.pop("errors", "warn"), ERRORS),
        options=values,
    )


def _choice(shown: str, name: str, value: str, good: tuple[str, ...]) -> str:
    value = value.lower()
    if value not in good:
        found = repr(value) if _SHOWABLE.fullmatch(value) else "another value"
        raise ValueError(f"{shown} takes for {name!r} one of {_one_of(good)}, found {found}{_closest(value, good)}")
    return value


def _deadline(shown: str, value: str) -> float:
    try:
        seconds = setting_values.as_age(value)
    except ValueError:
        seconds = -1.0
    if not _SHORTEST <= seconds <= _LONGEST:
        found = repr(value) if _SHOWABLE.fullmatch(value) else "another value"
        raise ValueError(f"{shown} takes for 'deadline' seconds from {_SHORTEST:g} to {_LONGEST:g}, found {found}")
    return seconds


def _one_of(names: Iterable[str]) -> str:
    return ", ".join(names)


def _closest(name: str, good: Collection[str]) -> str:
    close = difflib.get_close_matches(name, list(good), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""

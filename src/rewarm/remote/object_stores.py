"""From an address to obstore's store: which class, which options, whose credentials.

Not promised: that the credentials are good. Which there are is for each ecosystem to say: obstore reads AWS_*, GOOGLE_*
and AZURE_* and asks for a workload's identity by itself. It reads no profiles of AWS; where a machine has some, and
boto3, and the address names no key, boto3's own order of looking decides (environment, web identity, profile, ...).

What obstore does not know is put into its words here: connection strings of Azure's (`azure_strings.py`), and types of
Google's credentials for which it makes no store (`google_identity.py`).

Everything goes through here once, at the first request: making a store asks nobody.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypedDict, cast

from rewarm import settings
from rewarm.remote import azure_strings, google_identity
from rewarm.remote.address import Address
from rewarm.remote.blobs import RefusedError

# Of a request's time, what connecting may take at most, in seconds.
_CONNECT = 1.0

_AGENT = "rewarm"

_CLASSES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
_RENAMED = {
    # By this name nothing in the environment (AWS_ENDPOINT_URL_S3) counts more than what the address says.
    "s3": {"virtual_hosted": "virtual_hosted_style_request", "endpoint": "aws_endpoint_url_s3"},
    "gs": {"endpoint": "base_url"},
}
_NOT_THE_STORES = frozenset({"proxy", "root_certificate", "profile"})
_AWS_KEYS = frozenset({"access_key_id", "skip_signature", "web_identity_token_file", "role_arn"})


class Meta(TypedDict):
    """What obstore says of a blob."""

    path: str
    size: int
    last_modified: datetime


class Result(Protocol):
    """An answer whose body has not been read."""

    @property
    def meta(self) -> Meta: ...

    def bytes(self) -> Any: ...


class Store(Protocol):
    """What is used of obstore's stores, all of them alike."""

    def get(self, path: str) -> Result: ...

    def put(self, path: str, file: bytes, *, mode: str, use_multipart: bool) -> object: ...

    def delete(self, paths: str) -> None: ...

    def list(self, prefix: str | None, *, chunk_size: int) -> Iterator[Sequence[Meta]]: ...


def load(address: Address) -> None:
    """Import what the store of an address needs. Where something is missing, `open_store` says so.

    boto3 cannot be imported any more when the program is at its end.
    """
    importlib.import_module("obstore.store")
    if address.scheme == "s3" and _asks_boto3(address) and importlib.util.find_spec("boto3") is not None:
        importlib.import_module("obstore.auth.boto3")


def open_store(address: Address) -> Store:
    """The store of an address.

    Raises:
      RefusedError: obstore does not take the address, or an option of it.
    """
    stores: Any = importlib.import_module("obstore.store")
    common: dict[str, Any] = {"client_options": _client_options(address), "retry_config": _retries(address.deadline)}
    try:
        if address.scheme in ("http", "https"):
            return cast(Store, stores.HTTPStore(address.url, **common))
        more = _credentials(address) if address.scheme == "s3" else {}
        config = {**more.pop("config", {}), **_config(address)}
        make = partial(getattr(stores, _CLASSES[address.scheme]), address.host, prefix=address.path or None)
        try:
            return cast(Store, make(config=config, **common, **more))
        except Exception as error:
            kind = google_identity.kind_in(error) if address.scheme == "gs" else None
            if kind is None:
                raise
        found = google_identity.provider(kind, config.pop("application_credentials", None))
        return cast(Store, make(config=config, credential_provider=found, **common))
    except RefusedError:
        raise
    except Exception as error:  # noqa: BLE001 - its text may hold the value of an option
        raise RefusedError(_trouble_with(error)) from None


# What obstore (0.12) says of an address or an option that it does not take, and the same in words that repeat nothing.
_TROUBLES: tuple[tuple[str, str], ...] = (
    ("MissingAccount", "no account is named: ?account_name=NAME or AZURE_STORAGE_ACCOUNT_NAME"),
    ("OpenCredentials", "the file of credentials cannot be opened: correct its path, or rights"),
    ("DecodeCredentials", "the credentials are not in Google's JSON: is it the right file?"),
    ("InvalidAccessKey", "account_key is not base64: copy the whole key again"),
    ("MissingSasComponent", "sas_key is no query of name=value pairs: copy the whole token again"),
    ("as boolean", "an option that is true or false has another value"),
    ("checksum algorithm", "checksum_algorithm is not one that it knows, such as sha256"),
    ('store: "HTTP client"', "the proxy, or another option of the connection, is no URL"),
    ("No certificates found", "root_certificate holds no certificate in PEM"),
)


def _trouble_with(error: Exception) -> str:
    """In words that are listed here: the error's own may hold the value of an option."""
    text = str(error)
    unknown = f"the address or its options cannot be used ({type(error).__name__})"
    return next((words for mark, words in _TROUBLES if mark in text), unknown)


def _config(address: Address) -> dict[str, str]:
    renamed = _RENAMED.get(address.scheme, {})
    config = {renamed.get(name, name): value for name, value in address.options.items() if name not in _NOT_THE_STORES}
    if address.scheme == "gs" and "base_url" in config and not _has_google_credentials(config):
        # Another server than Google's: no token of Google's for it. (`skip_signature` alone does not hold for a put.)
        config["service_account_key"] = _anonymous_at(config["base_url"])
    if address.scheme == "s3":
        # One request either way, and servers that are not AWS often lack the other.
        config["disable_bulk_delete"] = "true"
    return {**_in_connection_string(address), **config} if address.scheme == "az" else config


def _in_connection_string(address: Address) -> dict[str, str]:
    text = settings.variables((azure_strings.VARIABLE,)).get(azure_strings.VARIABLE)
    if text is None or not azure_strings.IN_ITS_PLACE.isdisjoint(address.options):
        return {}
    try:
        found = azure_strings.options_in(text)
    except ValueError as error:
        raise RefusedError(f"{azure_strings.VARIABLE} cannot be used: {error}") from None
    account = found.get("account_name", "")
    return found if address.options.get("account_name", account) == account else {}


def _has_google_credentials(config: Mapping[str, str]) -> bool:
    return not {"service_account", "service_account_key", "application_credentials", "bearer_token"}.isdisjoint(config)


def _anonymous_at(url: str) -> str:
    fields = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return json.dumps(fields)


def _client_options(address: Address) -> dict[str, Any]:
    options: dict[str, Any] = {
        "timeout": timedelta(seconds=address.deadline),
        "connect_timeout": timedelta(seconds=min(_CONNECT, address.deadline)),
        "allow_http": _allows_http(address),
        "user_agent": _AGENT,
    }
    if "proxy" in address.options:
        options["proxy_url"] = address.options["proxy"]
    if "root_certificate" in address.options:
        options["root_certificate"] = _certificate(address.options["root_certificate"])
    header = _authorization(address.options) if address.scheme in ("http", "https") else ""
    if header:
        options["default_headers"] = {"authorization": header}
    return options


def _allows_http(address: Address) -> bool:
    """Whether the user wrote "http": in the address, or else in a variable of the environment that obstore reads.

    Without an endpoint anywhere, obstore's own are https, whatever is allowed.
    """
    if address.scheme in ("http", "https"):
        return address.scheme == "http"
    return not address.options.get("endpoint", "http://").startswith("https://")


def _authorization(options: Mapping[str, str]) -> str:
    if "token" in options:
        return f"Bearer {options['token']}"
    if "username" not in options and "password" not in options:
        return ""
    pair = f"{options.get('username', '')}:{options.get('password', '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"


def _certificate(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except (OSError, RuntimeError):
        raise RefusedError("the file of root_certificate cannot be read") from None


def headers(address: Address) -> dict[str, str]:
    """What every request to a server of HTTP has, credentials among it."""
    authorization = _authorization(address.options)
    return {"user-agent": _AGENT, **({"authorization": authorization} if authorization else {})}


def _retries(deadline: float) -> dict[str, Any]:
    """None: obstore would send once more what a server has just said that it is asked too often (`objects.py` knows
    when another try is of use)."""
    return {"max_retries": 0, "retry_timeout": timedelta(seconds=deadline)}


def _credentials(address: Address) -> dict[str, Any]:
    """A provider that asks boto3, where profiles are to be honoured, and the profile's region."""
    profile = address.options.get("profile")
    if not _asks_boto3(address):
        return {}
    if importlib.util.find_spec("boto3") is None:
        if profile is None:
            return {}
        raise RefusedError("profile= needs boto3 (pip install boto3)")
    return _from_boto3(profile)


def _asks_boto3(address: Address) -> bool:
    """Whether profiles are to be honoured."""
    return "profile" in address.options or (_AWS_KEYS.isdisjoint(address.options) and _has_profiles())


def _has_profiles() -> bool:
    try:
        folder = Path("~/.aws").expanduser()
        return (folder / "config").exists() or (folder / "credentials").exists()
    except (OSError, RuntimeError):
        return False


def _from_boto3(profile: str | None) -> dict[str, Any]:
    session: Any = importlib.import_module("boto3").Session
    auth: Any = importlib.import_module("obstore.auth.boto3")
    try:
        provider = auth.Boto3CredentialProvider(session(profile_name=profile))
    except Exception as error:  # noqa: BLE001 - botocore's errors have no base that could be named without it
        if profile is None:
            return {}  # files without a profile that is of use: obstore looks for itself
        raise RefusedError(f"the profile cannot be used ({type(error).__name__})") from None
    return {"credential_provider": provider, "config": {**provider.config}}

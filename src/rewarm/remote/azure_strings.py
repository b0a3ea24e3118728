"""Connection strings of Azure Storage, as the portal shows them, in the words of the client (obstore reads none).

Not promised: that what one says is so. A string for something else than blobs is an error, and no error shows a part of
one: most of it is a key.

Source: https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"

# Options of an address that say who asks: beside one of these a connection string says nothing.
IN_ITS_PLACE = frozenset(
    {
        *("account_key", "sas_key", "token", "client_id", "client_secret", "federated_token_file", "msi_endpoint"),
        *("use_azure_cli", "use_emulator", "skip_signature", "credential_type"),
    }
)

_SUFFIX = "core.windows.net"


def options_in(text: str) -> dict[str, str]:
    """The options of obstore's that a connection string stands for.

    Raises:
      ValueError: it is none for blobs, or of a form that is not known here; in words that show nothing of it.
    """
    said = _parts(text)
    if said.get("usedevelopmentstorage", "").lower() == "true":
        if "developmentstorageproxyuri" in said:
            raise ValueError("it has a DevelopmentStorageProxyUri; say ?use_emulator=true&endpoint=URL in the address")
        return {"use_emulator": "true"}
    account, endpoint = said.get("accountname", ""), said.get("blobendpoint", "").rstrip("/")
    account = account or _account_in(endpoint)
    if not account:
        raise ValueError("it names no account (AccountName=)")
    if not endpoint and (said.get("endpointsuffix") or said.get("defaultendpointsprotocol", "https") != "https"):
        scheme = said.get("defaultendpointsprotocol", "https")
        endpoint = f"{scheme}://{account}.blob.{said.get('endpointsuffix') or _SUFFIX}"
    options = {"account_name": account, **({"endpoint": endpoint} if endpoint else {})}
    if said.get("accountkey"):
        return {**options, "account_key": said["accountkey"]}
    if said.get("sharedaccesssignature"):
        return {**options, "sas_key": said["sharedaccesssignature"].removeprefix("?")}
    raise ValueError("it has neither an AccountKey nor a SharedAccessSignature")


def _parts(text: str) -> Mapping[str, str]:
    said: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.strip().strip('"').split(";"))):
        name, mark, value = part.partition("=")
        if not mark:
            raise ValueError("it is no list of name=value, divided by semicolons")
        said[name.strip().lower()] = value.strip()
    return said


def _account_in(endpoint: str) -> str:
    """The account that such an endpoint belongs to, as in `https://account.blob.core.windows.net`; "" where unknown."""
    host = urlsplit(endpoint).hostname or ""
    account, _, rest = host.partition(".")
    return account if rest.startswith("blob.") else ""

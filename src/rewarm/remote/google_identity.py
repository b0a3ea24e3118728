"""Identities of Google's that obstore does not know, by Google's own library (google-auth), where that is installed.

Not promised: that a token is given. Files of credentials of type `service_account` and `authorized_user` obstore reads
by itself; the others (`external_account`, which is workload identity federation, `impersonated_service_account`, ...)
are google-auth's to read, and it is asked for a token when obstore wants one.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rewarm import settings
from rewarm.remote.blobs import RefusedError

_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_GCLOUDS = "~/.config/gcloud/application_default_credentials.json"
_UNKNOWN = re.compile(r"unknown variant `([a-z_]{1,60})`")

# How long a token is used whose end nobody says, in seconds.
_USED_FOR = 60


def kind_in(error: Exception) -> str | None:
    """The type of the credentials for which obstore has refused to make a store; `None`: it was something else."""
    found = _UNKNOWN.search(str(error))
    return found[1] if found is not None else None


def provider(kind: str, path: str | None) -> Callable[[], dict[str, Any]]:
    """Gives obstore tokens for credentials of this type.

    Args:
      kind: for an error.
      path: of the file of credentials; `None` for where obstore has looked.

    Raises:
      RefusedError: google-auth is missing, or cannot use them.
    """
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.auth") is None:
        raise RefusedError(
            f'credentials of type {kind} need google-auth and requests (pip install "rewarm[google]"), or give a '
            "key of type service_account"
        )
    try:
        info = json.loads(Path(path or _usual_path()).expanduser().read_bytes())
        credentials = _credentials(info)
        request: Any = importlib.import_module("google.auth.transport.requests").Request()
    except Exception as error:  # noqa: BLE001 - its text may hold a part of the file
        raise RefusedError(f"credentials of type {kind} cannot be used ({type(error).__name__})") from None

    def token() -> dict[str, Any]:
        credentials.refresh(request)
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=_USED_FOR)
        expiry = credentials.expiry or soon  # google-auth's is UTC, and does not say so
        return {"token": credentials.token, "expires_at": expiry.replace(tzinfo=datetime.UTC)}

    return token


def _usual_path() -> str:
    """The file that obstore reads where no option names one."""
    return settings.variables((_VARIABLE,)).get(_VARIABLE, _GCLOUDS)


def _credentials(info: Any) -> Any:
    """google-auth's object. Its own `default` would ask Google for the project first, which nobody needs here.

    Raises:
      ValueError: of a type that is not known here; other errors are google-auth's.
    """
    match info["type"]:
        case "external_account":
            return _made(f"google.auth.{_external(info)}", "from_info", info, scopes=_SCOPES)
        case "external_account_authorized_user":
            return _made("google.auth.external_account_authorized_user", "from_info", info)
        case "impersonated_service_account":
            how = "from_impersonated_service_account_info"
            return _made("google.auth.impersonated_credentials", how, info, scopes=_SCOPES)
        case _:
            raise ValueError("a type that is not known")


def _external(info: Any) -> str:
    if info["subject_token_type"] == "urn:ietf:params:aws:token-type:aws4_request":
        return "aws"
    return "pluggable" if "executable" in info["credential_source"] else "identity_pool"


def _made(module: str, how: str, *arguments: Any, **more: Any) -> Any:
    return getattr(importlib.import_module(module).Credentials, how)(*arguments, **more)

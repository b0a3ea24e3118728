"""From what a user typed to a value: the parsers of settings.

Not promised: a whole sentence. A parser raises `ValueError` with a few words; `settings.py` knows where the value came
from and says the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off", ""})


def as_directory(value: Any) -> Path:
    text = os.fspath(value)
    if not isinstance(text, str) or not text.strip() or any(ord(letter) < 32 for letter in text):
        raise ValueError("a path of a local directory")
    if "://" in text:
        raise ValueError("a path of a local directory, not a URL")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise ValueError("a path of a local directory, without a ~ that names no home") from None
    except OSError:
        raise ValueError("an absolute path of a local directory, since the current one is gone") from None


def as_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in TRUE | FALSE:
        return value.strip().lower() in TRUE
    raise ValueError("true or false (also 1 or 0, yes or no, on or off)")


def as_seconds(value: Any) -> float:
    number = float(value) if not isinstance(value, bool) else -1.0
    if not 0.0 <= number < float("inf"):
        raise ValueError("seconds, 0 or more")
    return number


def as_bytes(value: Any) -> int:
    number = int(value) if not isinstance(value, (bool, float)) else -2
    if number < -1:
        raise ValueError("a whole number of bytes, 0 or more (or -1 for no restriction)")
    return number


_UNITS = {"": 1, "b": 1, **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {letter: 1024**power for power, letter in enumerate("kmgt", 1)}
_SPANS = {"": 1.0, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_UNBOUNDED = frozenset({"none", "unlimited", "-1"})
SIZE = "bytes, with a unit if you like (500MB, 10GiB), 0 to store nothing, or none for no bound"
AGE = "seconds, with a unit if you like (12h, 30d), or none for no bound"


def as_amount(value: Any, units: Mapping[str, float]) -> float:
    """A number with a unit; -1 stands for no bound."""
    if isinstance(value, bool):
        raise ValueError("a number")
    text = str(value).strip().lower().replace(" ", "")
    if text in _UNBOUNDED:
        return -1.0
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    number = float(digits) * units.get(text[len(digits) :], float("nan"))
    if not 0.0 <= number < 2**63:
        raise ValueError("0 or more")
    return number


def as_size(value: Any) -> int:
    return int(as_amount(value, _UNITS))


def as_span(value: Any) -> float:
    """As `as_age`, and 0 with a unit, which is meant: 0 alone may be meant for no bound."""
    return 0.0 if str(value).strip()[-1:].isalpha() and as_amount(value, _SPANS) == 0.0 else as_age(value)


def as_age(value: Any) -> float:
    age = as_amount(value, _SPANS)
    if age == 0.0:
        raise ValueError("more than 0")
    return age


def as_count(value: Any) -> int:
    number = as_amount(value, {"": 1})
    if number == 0.0 or number != int(number):
        raise ValueError("a whole number")
    return int(number)


def as_share(value: Any) -> float:
    number = float(value) if not isinstance(value, bool) else -1.0
    if not 0.0 <= number <= 1.0:
        raise ValueError("from 0 to 1")
    return number


def as_load_ahead(value: Any) -> str:
    if isinstance(value, str) and value.strip().lower() == "early":
        return "early"
    return "yes" if as_bool(value) else ""


def as_load_check(value: Any) -> str:
    text = str(value).strip().lower()
    if text in FALSE | {"none"}:
        return ""
    if text != "subprocess":
        raise ValueError("subprocess")
    return text


INCOMPLETE = "refuse, refresh or serve"
_LOCK_POLICIES = ("error", "warn")


def as_incomplete(value: Any) -> str:
    return _one_of(value, tuple(INCOMPLETE.replace(" or", ",").split(", ")))


def as_lock_policy(value: Any) -> str:
    return _one_of(value, _LOCK_POLICIES)


def as_untuned(value: Any) -> str:
    return _one_of(value, ("default", "error"))


def _one_of(value: Any, words: tuple[str, ...]) -> str:
    text = str(value).strip().lower()
    if text not in words:
        raise ValueError(" or ".join(words))
    return text


def as_lock(value: Any) -> Path:
    """The path of a lock file; the empty path stands for none."""
    if isinstance(value, str) and value.strip().lower() in FALSE | {"none"}:
        return Path()
    (path,) = as_files([value])
    return path


def as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    return value


def as_level(value: Any) -> int:
    number = int(value) if not isinstance(value, (bool, float)) else 0
    if not 1 <= number <= 22:
        raise ValueError("a zstd level from 1 to 22")
    return number


def as_files(value: Any) -> tuple[Path, ...]:
    """Paths, from a sequence or from text that `os.pathsep` divides."""
    if isinstance(value, str) and "://" in value:  # which the divider would cut
        raise ValueError("a URL")
    parts = [value] if hasattr(value, "__fspath__") else _parts(value, os.pathsep)
    try:
        return tuple(as_directory(part) for part in parts)
    except ValueError as error:
        raise ValueError("not a path") from error


def _parts(value: Any, divider: str) -> list[Any]:
    """The parts of a text, without empty ones, or of any sequence."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(divider) if part.strip()]
    return list(value)


def as_names(value: Any) -> tuple[str, ...]:
    """Names of variables, from a sequence or from text that commas divide."""
    names = sorted({str(part).strip() for part in _parts(value, ",")})
    if any(not name or "=" in name or "\0" in name for name in names):
        raise ValueError("names of variables")
    return tuple(names)


def as_entries(value: Any) -> tuple[str, ...]:
    """Text, in the order in which it was given, from a sequence or from text that commas divide."""
    return tuple(str(part).strip() for part in _parts(value, ","))


def as_addresses(value: Any) -> tuple[str, ...]:
    """Addresses of remotes; what each means is `remote/address.py`'s to say."""
    parts = as_entries([value] if hasattr(value, "__fspath__") else value)
    return () if len(parts) == 1 and parts[0].lower() in FALSE | {"none"} else parts


# What entries of bundles are signed for: were it a namespace of a remote too, its entries would pass for a bundle's.
OF_BUNDLES = "bundle"
NAMESPACE = f"a name of letters, digits, - and _, at most 64, and not {OF_BUNDLES!r}"
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def as_namespace(value: Any) -> str:
    if not isinstance(value, str) or not _NAMESPACE.fullmatch(value.strip()) or value.strip() == OF_BUNDLES:
        raise ValueError(NAMESPACE)
    return value.strip()


def as_namespaces(value: Any) -> tuple[str, ...]:
    return tuple(as_namespace(part) for part in _parts(value, ","))


def as_secret(value: Any) -> str:
    """Text that no error may show."""
    if not isinstance(value, str | bytes):
        raise ValueError("text")
    return value if isinstance(value, str) else value.decode("utf-8", "replace")

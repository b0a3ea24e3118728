"""Which places a cache directory has, and which one belongs to a build and a kind of device.

Not promised: that a place is there, or is fit for XLA; see `Place.prepare`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from rewarm import small_files
from rewarm.autotune.build_ids import family_of, with_family
from rewarm.autotune.formats import keys
from rewarm.autotune.formats.model import Family
from rewarm.autotune.places import ABOUT, MOST_BYTES, VERSION, Place
from rewarm.sharing.tuning import FOLDER, is_place


def places(cache_root: Path) -> list[Place]:
    """The places of a cache directory, by name; what cannot be read is not among them."""
    folder = cache_root / FOLDER
    with contextlib.suppress(OSError), os.scandir(folder) as items:
        names = sorted(one.name for one in items if is_place(one.name) and one.is_dir(follow_symlinks=False))
        return [_place_at(folder / name) for name in names]
    return []


def unused(cache_root: Path, seconds: float) -> list[Place]:
    """The places that nothing was prepared in for so long; some ten minutes more or less."""
    return [place for place in places(cache_root) if time.time() - place.last_used() > seconds]


def place_of(cache_root: Path, build: str, device_text: str, family: Family) -> Place:
    """The place for a build and a kind of device, which need not be there yet.

    Args:
      cache_root: the cache directory.
      build: see `build_id`; the place's is `with_family`.
      device_text: XLA's, with or without the version of cuDNN.
      family: which formats the build uses.

    Raises:
      ValueError: the device text is empty; see `place_of_unknown`.
    """
    if not device_text:
        raise ValueError("expected XLA's device text, found none")
    device, name = keys.device_of_legacy(device_text), with_family(build, family)
    return Place(_folder(cache_root, name, device.fingerprint), name, device.text, device.fingerprint, family)


def place_of_unknown(cache_root: Path, build: str, about: str, family: Family, *, fingerprint: str = "") -> Place:
    """The place of a device whose text is not known.

    Args:
      about: whatever tells this kind of device from others.
      fingerprint: XLA's own of its text, where that is known.
    """
    told, name = fingerprint or hashlib.sha256(about.encode()).hexdigest()[:16], with_family(build, family)
    return Place(_folder(cache_root, name, told), name, "", told, family)


def _folder(cache_root: Path, build: str, fingerprint: str) -> Path:
    name = f"{build}-{fingerprint}"
    if not is_place(name):
        raise ValueError(f"expected a build as build_id makes it, found {build!r}")
    return cache_root / FOLDER / name


def _place_at(root: Path) -> Place:
    build, _, fingerprint = root.name.rpartition("-")
    told: dict[str, object] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = json.loads(small_files.contents(root / ABOUT, MOST_BYTES))
        told = content if isinstance(content, dict) and content.get("version") == VERSION else {}
    device, family = told.get("device"), told.get("family")
    text = device if isinstance(device, str) and keys.fingerprint64(device) == fingerprint else ""
    said = Family.LEGACY if family == Family.LEGACY.value else Family.NEW
    return Place(root, build, text, fingerprint, family_of(build) or said)

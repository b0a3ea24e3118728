"""Stores: four verbs over immutable entries, and where they lie."""

from rewarm.store.contract import EntryInfo, Store, check_key
from rewarm.store.local import Copy, LocalStore

__all__ = ["Copy", "EntryInfo", "LocalStore", "Store", "check_key"]

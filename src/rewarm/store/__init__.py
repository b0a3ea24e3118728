"""Stores: four verbs over immutable entries, and where they lie."""

from rewarm.store.contract import EntryInfo, Store, check_key
from rewarm.store.local import LocalStore

__all__ = ["EntryInfo", "LocalStore", "Store", "check_key"]

"""Entries shared through remotes: what is asked and believed, what goes there, and how it gets there."""

from rewarm.sharing.remotes import Fetched, Remotes
from rewarm.sharing.tier import Namespaces, RemoteTier, Traffic
from rewarm.sharing.uploads import Uploads

__all__ = ["Fetched", "Namespaces", "RemoteTier", "Remotes", "Traffic", "Uploads"]

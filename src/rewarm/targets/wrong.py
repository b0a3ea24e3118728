"""What can be wrong with a target or with its topology."""

from __future__ import annotations

from rewarm.errors import RewarmError


class TargetError(RewarmError, ValueError):
    """A description of a machine cannot be used; the message says which, where, what was expected and found."""


class UnknownTargetError(TargetError, LookupError):
    """Neither the name of a machine that is described here nor a file."""


class TopologyError(TargetError):
    """A topology has a form that its platform does not have; the message has the good ones."""

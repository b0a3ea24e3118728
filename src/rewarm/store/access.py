"""Who else may write to a directory. An entry is code: whoever may write one may run it in the programs of others.

Not promised: that nobody else can. Access lists, the directories above, and administrators are not looked at.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def others_may_write(directory: Path) -> str | None:
    """Why entries in `directory` may be another user's work, and what to do about it, or `None`.

    A group counts as others, unless it is the user's private one: it is this process's own, has the user's name, and
    has no other members. Where there are no users to tell apart, nobody is another one.
    """
    try:
        status = directory.stat()
    except OSError:
        return None
    if not hasattr(os, "getuid"):
        return None
    if status.st_uid not in (os.getuid(), 0):
        return f"{directory} belongs to uid {status.st_uid}: choose one of your own, or {_ADVICE}"
    if status.st_mode & stat.S_IWOTH:
        return f"everybody may write to {directory}: run `chmod go-w {directory}`, or {_ADVICE}"
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid):
        return f"the group {_group(status.st_gid)} may write to {directory}: run `chmod go-w {directory}`, or {_ADVICE}"
    return None


def not_ones_own(status: os.stat_result, owners: frozenset[int]) -> str | None:
    """Why a file may be the work of others than these, or `None`.

    A directory that was a group's once has such files, whoever may write to it now.
    """
    if not owners:  # a system without users
        return None
    if status.st_uid not in owners:
        return "it is another user's"
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid)):
        return "others may write to it"
    return None


_ADVICE = "set shared=True when everybody who may write there is trusted"


def _is_private(gid: int) -> bool:
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:  # without a name nothing says whose it is
        return False
    own = gid == os.getegid() and group.gr_name == user.pw_name
    return own and set(group.gr_mem) <= {user.pw_name}


def _group(gid: int) -> str:
    import grp

    try:
        return f"{grp.getgrgid(gid).gr_name!r}"
    except KeyError:
        return str(gid)

"""Who may write to a store's directory, with which modes it is made, and what is left alone in a group's."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import store_children
from store_children import NOBODY, can_be_bound_by_modes, run, run_unprivileged
from store_making import truth

from rewarm.errors import StoreError
from rewarm.policy import Bounds
from rewarm.store import LocalStore, access
from rewarm.store.conformance import key_of


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    made = LocalStore(tmp_path / "cache")
    made.put(key_of(0), b"x")
    return made


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can reach; pytest's own are its user's alone."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def needs_root() -> None:
    if os.getuid() != 0:
        pytest.skip("only root may give files to another user")


# ---------------------------------------------------------------------------------------------------------------
# Who may write


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o2755, 0o500])
def test_a_directory_of_ours_alone_is_fine(store: LocalStore, mode: int) -> None:
    store.root.chmod(mode)
    assert store.others_may_write() is None


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o707])
def test_everybody_may_write(store: LocalStore, mode: int) -> None:
    store.root.chmod(mode)
    reason = store.others_may_write()
    assert reason is not None
    assert reason.startswith(f"everybody may write to {store.root}")
    assert f"chmod go-w {store.root}" in reason
    assert "shared=True" in reason


def test_a_directory_of_another_user(store: LocalStore) -> None:
    needs_root()
    os.chown(store.root, NOBODY, -1)
    reason = store.others_may_write()
    assert reason is not None
    assert f"belongs to uid {NOBODY}" in reason
    assert "shared=True" in reason


def test_a_directory_of_root_is_fine_for_everybody(place: Path) -> None:
    needs_root()
    (place / "cache").mkdir(mode=0o755)
    printed = run_unprivileged("print(LocalStore(Path(sys.argv[1])).others_may_write())", place / "cache")
    assert printed == ["None"]


def test_a_group_that_has_no_name_is_others(store: LocalStore) -> None:
    needs_root()
    os.chown(store.root, -1, 54_321)
    store.root.chmod(0o770)
    reason = store.others_may_write()
    assert reason is not None
    assert reason.startswith(f"the group 54321 may write to {store.root}")
    assert f"chmod go-w {store.root}" in reason


def test_the_private_group_of_the_user_is_no_other(store: LocalStore) -> None:
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(os.getegid())
    except KeyError:
        pytest.skip("this user or group has no name")
    if group.gr_name != user.pw_name or set(group.gr_mem) - {user.pw_name}:
        pytest.skip("this user has no private group")
    os.chown(store.root, -1, os.getegid())
    store.root.chmod(0o770)
    assert store.others_may_write() is None


@pytest.mark.parametrize(
    ("user", "group", "members", "gid", "private"),
    [
        ("ann", "ann", [], None, True),
        ("ann", "ann", ["ann"], None, True),
        ("ann", "ann", ["bob"], None, False),
        ("ann", "users", [], None, False),
        ("ann", "ann", [], 54_321, False),
        (None, "ann", [], None, False),
        ("ann", None, [], None, False),
    ],
)
def test_which_group_is_private(
    monkeypatch: pytest.MonkeyPatch,
    user: str | None,
    group: str | None,
    members: list[str],
    gid: int | None,
    private: bool,
) -> None:
    import grp
    import pwd
    from types import SimpleNamespace

    def named(name: str | None, **fields: object) -> SimpleNamespace:
        if name is None:
            raise KeyError("no such entry")
        return SimpleNamespace(pw_name=name, gr_name=name, **fields)

    monkeypatch.setattr(pwd, "getpwuid", lambda _: named(user))
    monkeypatch.setattr(grp, "getgrgid", lambda _: named(group, gr_mem=members))
    assert access._is_private(os.getegid() if gid is None else gid) is private


def test_a_shared_store_was_said_to_be_trusted(store: LocalStore) -> None:
    store.root.chmod(0o2777)
    assert LocalStore(store.root, shared=True).others_may_write() is None


def test_what_is_not_there_is_nobodys(tmp_path: Path) -> None:
    assert LocalStore(tmp_path / "none").others_may_write() is None


# ---------------------------------------------------------------------------------------------------------------
# A group's directory


@pytest.mark.parametrize("umask", ["0o000", "0o022", "0o077"])
def test_what_is_made_in_a_shared_store_is_the_groups(tmp_path: Path, umask: str) -> None:
    root = tmp_path / "cache"
    run(
        """
        os.umask(int(sys.argv[2], 0))
        from rewarm.policy import Bounds
        store = LocalStore(Path(sys.argv[1]), bounds=Bounds(max_entries=20), shared=True)
        print(store.prepare())
        for number in range(60):
            store.put(key_of(number), b"x", seconds=1.0)
        store.put(key_of(1), b"bad")
        store.quarantine(key_of(1), "bad", b"bad")
        list(store.collect(Bounds(max_entries=10)))
        os.utime(next(store.root.glob("??/" + "?" * 64)), (1e9, 1e9))
        """,
        root,
        umask,
    )
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    files = [path for path in root.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o2770}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o660}
    assert {"sizes", ".usage", "CACHEDIR.TAG"} <= {file.name for file in files}


_AS_NOBODY_OF_ITS_GROUP = """
from rewarm.policy import Bounds
if os.getuid() == 0:
    told(LocalStore(Path("/dev/null/x")).put, key_of(0), b"")
    import rewarm.store.collection
    os.setgroups([]); os.setgid(54321); os.setuid(65534)
store = LocalStore(Path(sys.argv[1]), bounds=Bounds(max_entries=int(sys.argv[2])), shared=True)
"""


def shared_place(place: Path) -> LocalStore:
    """A group's store in which the first entries are ours, and a member of the group that is somebody else."""
    if not can_be_bound_by_modes():
        pytest.skip("file modes bind nobody here")
    needs_root()
    os.chown(place, -1, 54_321)
    place.chmod(0o2775)
    store = LocalStore(place / "cache", shared=True)
    for number in range(20):
        store.put(key_of(number), b"ours", seconds=1.0)
    return store


def test_two_users_share_a_store(place: Path) -> None:
    store = shared_place(place)
    printed = run(
        _AS_NOBODY_OF_ITS_GROUP
        + """
print(store.prepare(), store.others_may_write(), told(store.get, key_of(0)))
for number in range(100, 140):
    store.put(key_of(number), b"theirs", seconds=1.0)
print(store.total() == (sum(info.size for info in store.scan()), len(list(store.scan()))), store.total()[1] <= 20)
""",
        store.root,
        20,
    )
    assert printed == ["None None b'ours'", "True True"]
    assert truth(store)[1] <= 20
    store.put(key_of(500), b"ours again", seconds=1.0)
    assert store.total() == truth(store)


def test_in_a_sticky_directory_only_ones_own_goes(place: Path) -> None:
    store = shared_place(place)
    for folder in (store.root, *store.root.glob("[0-9a-f][0-9a-f]")):
        folder.chmod(0o3770)
    printed = run(
        _AS_NOBODY_OF_ITS_GROUP
        + """
print(told(store.put, key_of(900), b"x"))
store.bounds = Bounds(max_entries=25)
print({told(store.put, key_of(number), b"theirs", ) for number in range(100, 140)})
print(len(list(store.scan())), sum(store.get(info.key) == b"ours" for info in store.scan()))
print([one.key for one in store.collect(Bounds(max_entries=20))] != [], len(list(store.scan())))
""",
        store.root,
        20,
    )
    assert printed == ["StoreError EDQUOT", "{'None'}", "25 20", "True 20"]


# ---------------------------------------------------------------------------------------------------------------
# Read only


def test_a_read_only_store_attempts_no_writes(store: LocalStore) -> None:
    os.utime(store.path(key_of(0)), (1e9, 1e9))
    store.read_only = True
    before = {path: path.stat().st_mtime_ns for path in [store.root, *store.root.rglob("*")]}
    assert store.get(key_of(0)) == b"x"
    for act in (lambda: store.put(key_of(1), b"y"), lambda: store.delete(key_of(0))):
        with pytest.raises(StoreError, match="read-only"):
            act()
    store.quarantine(key_of(0), "bad", b"x")
    assert [one.key for one in store.collect(Bounds(max_entries=0))] == [key_of(0)], "as with dry_run"
    assert store.total() == (1, 1)
    assert set(store.usages()) == {key_of(0)}
    assert {path: path.stat().st_mtime_ns for path in [store.root, *store.root.rglob("*")]} == before


def test_prepare_says_whether_it_is_read_only(place: Path) -> None:
    store = LocalStore(place / "cache")
    store.put(key_of(0), b"x")
    assert store.prepare() is None
    assert not store.read_only
    for path in (store.root, store.root / key_of(0)[:2]):
        path.chmod(0o555)
    store.path(key_of(0)).chmod(0o444)
    code = """
store = LocalStore(Path(sys.argv[1]))
print(store.prepare(), store.read_only, told(store.put, key_of(1), b''))
"""
    assert store_children.run_unprivileged(code, store.root) == ["read-only True StoreError EROFS"]
    for path in (store.root, store.root / key_of(0)[:2]):
        path.chmod(0o755)

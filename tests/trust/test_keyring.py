"""The keyring: where keys come from, who may read and write there, and commands that misbehave."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from signed_entries import KEY, SPACE, entry_of, fixed_key, refusal

from conftest import Program
from rewarm.trust import (
    Algorithm,
    Keyring,
    KeySources,
    Posture,
    SigningKey,
    UnusableKeyError,
    errors,
    key_command,
    load,
    signed,
)
from rewarm.trust import keyring as keyring_module
from rewarm.trust.key_command import output_of

MINE, THEIRS, OTHERS = (fixed_key(Algorithm.ED25519, number) for number in range(3))
SHARED = fixed_key(Algorithm.HMAC)


def write(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with a key of his own, two that he trusts, and one that is revoked."""
    folder = tmp_path / "keys"
    write(folder / "signing.key", MINE.to_text() + "\n")
    write(folder / "trusted" / "theirs.pub", f"# the CI\n\n{THEIRS.public.to_text()} ci\n", 0o644)
    write(folder / "trusted" / "shared.pub", SHARED.public.to_text())
    write(folder / "trusted" / "notes.txt", "not a key", 0o666)
    write(folder / "trusted" / "._theirs.pub", "left by another system")
    write(folder / "revoked", f"# lost\n{OTHERS.id} in May\n")
    (folder / "trusted").chmod(0o755)
    return folder


def by(signer: SigningKey) -> bytes:
    return signed(entry_of(), KEY, SPACE, signer)


def wrong(sources: KeySources) -> str:
    """The one error of sources that cannot be used; no part of a secret is in it."""
    with pytest.raises(UnusableKeyError) as caught:
        load(sources)
    message = str(caught.value)
    assert "\n" not in message
    for part in ("expected ", "found ", "; "):
        assert part in message
    check_no_secret("".join(traceback.format_exception(caught.value)))
    return message


def check_no_secret(text: str) -> None:
    for key in (MINE, THEIRS, OTHERS, SHARED):
        assert key.to_text().partition(":")[2][:10] not in text


# -- folders and files ---------------------------------------------------------------------------------------------


def test_the_user_s_folder(folder: Path) -> None:
    keyring = load(KeySources(folder=folder))
    own = keyring.signing_key()
    assert own is not None
    assert own.id == MINE.id
    assert own.where == str(folder / "signing.key")
    assert {key.id for key in keyring.trusted.values()} == {THEIRS.id, SHARED.id}
    assert keyring.trusted[THEIRS.id].comment == "ci"
    assert keyring.trusted[THEIRS.id].where == f"{folder}/trusted/theirs.pub, line 3"
    assert [refusal(by(key), keyring) for key in (MINE, THEIRS, SHARED, OTHERS)] == [None, None, None, errors.REVOKED]


def test_no_folder_is_no_keys(tmp_path: Path) -> None:
    for sources in (KeySources(), KeySources(folder=tmp_path / "none"), KeySources(folder=tmp_path)):
        keyring = load(sources)
        assert keyring.signing_key() is None
        assert refusal(by(MINE), keyring) == errors.STRANGER


def test_sources_add_up(folder: Path, tmp_path: Path) -> None:
    team = tmp_path / "team"
    write(team / "a.pub", fixed_key(Algorithm.ED25519, 5).public.to_text(), 0o644)
    write(team / "revoked", f"{THEIRS.id}\n")
    one = write(tmp_path / "one", fixed_key(Algorithm.ED25519, 6).public.to_text(), 0o644)
    keyring = load(
        KeySources(
            signing_text=fixed_key(Algorithm.ED25519, 7).to_text(),
            trusted_texts=(fixed_key(Algorithm.ED25519, 8).public.to_text(), OTHERS.public.to_text()),
            trusted_paths=(team, one),
            revoked=(SHARED.id.upper() + "\n",),
            folder=folder,
        )
    )
    trusted = [fixed_key(Algorithm.ED25519, number) for number in (5, 6, 7, 8)]
    assert [refusal(by(key), keyring) for key in trusted] == [None] * 4
    # Revoked by any source beats trusted by any other; and the folder's key is not this process's own.
    assert [refusal(by(key), keyring) for key in (THEIRS, SHARED, OTHERS)] == [errors.REVOKED] * 3
    assert refusal(by(MINE), keyring) == errors.STRANGER


def test_one_source_of_a_signing_key(folder: Path) -> None:
    said: dict[str, object] = {
        "signing_text": SHARED.to_text(),
        "signing_file": folder / "signing.key",
        "signing_command": ("cat", str(folder / "signing.key")),
    }
    for names in itertools.combinations(said, 2):
        sources = KeySources(**{name: said[name] for name in names})  # type: ignore[arg-type]
        assert "give a text, a file or a command" in wrong(sources)
        check_no_secret(repr(sources) + str(sources))
    for name, value in said.items():
        assert load(KeySources(**{name: value})).signing_key() is not None  # type: ignore[arg-type]


def test_a_revoked_key_does_not_sign(folder: Path) -> None:
    write(folder / "revoked", MINE.id)
    keyring = load(KeySources(folder=folder))
    with pytest.raises(UnusableKeyError, match=f"found a revoked one, {MINE.id}; make a new one"):
        keyring.signing_key()
    assert refusal(by(MINE), keyring, Posture.STORE) == errors.REVOKED


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666, 0o610])
def test_a_secret_that_others_may_read_is_refused(folder: Path, mode: int) -> None:
    secret = folder / "signing.key"
    secret.chmod(mode)
    for sources in (KeySources(folder=folder), KeySources(signing_file=secret)):
        message = wrong(sources)
        assert str(secret) in message
        assert f"mode {mode:04o}" in message
        assert "run `chmod" in message
    secret.chmod(0o600)
    (folder / "trusted" / "shared.pub").chmod(mode)
    assert "shared.pub" in wrong(KeySources(folder=folder))


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_a_secret_of_one_s_own(folder: Path, mode: int) -> None:
    (folder / "signing.key").chmod(mode)
    assert load(KeySources(folder=folder)).signing_key() is not None


@pytest.mark.parametrize("which", ["", "trusted", "trusted/theirs.pub", "revoked"])
@pytest.mark.parametrize("more", [stat.S_IWGRP, stat.S_IWOTH])
def test_keys_that_others_may_change_are_refused(folder: Path, which: str, more: int) -> None:
    """Whoever may add a key decides whose code runs."""
    path = folder / which
    path.chmod(stat.S_IMODE(path.stat().st_mode) | more)
    message = wrong(KeySources(folder=folder))
    assert f"{path}: " in message
    assert "decide whose code runs here" in message
    assert f"`chmod go-w {path}`" in message


@pytest.mark.parametrize("name", ["signing.key", "revoked", "trusted/theirs.pub"])
@pytest.mark.parametrize(
    "content",
    [b"garbage", b"\xff\xfe\0\0", b"rewarm-ed25519:AAAA", b"x" * (2 << 20), b"rewarm-ed25519-secret:" + b"A" * 44],
)
def test_bad_files(folder: Path, name: str, content: bytes) -> None:
    path = write(folder / name, content)
    assert wrong(KeySources(folder=folder)).startswith(str(path))


@pytest.mark.parametrize("name", ["signing.key", "revoked", "trusted/theirs.pub"])
@pytest.mark.parametrize("thing", ["folder", "fifo", "dangling", "circle"])
def test_things_in_the_way(folder: Path, name: str, thing: str) -> None:
    path = folder / name
    path.unlink()
    if thing == "folder":
        path.mkdir()
    elif thing == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(path if thing == "circle" else folder / "nowhere")
    begin = time.monotonic()
    assert wrong(KeySources(folder=folder)).startswith(str(path))
    assert time.monotonic() - begin < 1


def test_empty_files(folder: Path) -> None:
    write(folder / "revoked", "\n# nobody\n")
    assert load(KeySources(folder=folder)).revoked == frozenset()
    for name, found in (("trusted/theirs.pub", "found none"), ("signing.key", "found 0 lines")):
        write(folder / name, "")
        assert found in wrong(KeySources(folder=folder))
        (folder / name).unlink()
    write(folder / "signing.key", f"{MINE.to_text()}\n{MINE.to_text()}\n")
    assert "found 2 lines" in wrong(KeySources(folder=folder))


def test_a_file_in_the_place_of_a_folder(folder: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "file", "x")
    assert "expected a folder of keys" in wrong(KeySources(folder=file))
    assert "expected a file with trusted keys, found nothing" in wrong(KeySources(trusted_paths=(tmp_path / "no",)))
    assert "found nothing" in wrong(KeySources(signing_file=tmp_path / "no"))
    (folder / "trusted" / "theirs.pub").unlink()
    (folder / "trusted" / "shared.pub").unlink()
    (folder / "trusted" / "notes.txt").unlink()
    (folder / "trusted" / "._theirs.pub").unlink()
    (folder / "trusted").rmdir()
    write(folder / "trusted", "x")
    assert "expected a folder of keys" in wrong(KeySources(folder=folder))


IN_A_READ_ONLY_MOUNT = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77
exec "$2" -c "$3" "$1"
"""
LOADED = """
import pathlib, sys
from rewarm.trust import KeySources, load
load(KeySources(trusted_paths=(pathlib.Path(sys.argv[1]),)))
"""


def test_a_mounted_secret_of_a_cluster(tmp_path: Path) -> None:
    """Where nobody can write, a mode that would let everybody is no reason to refuse."""
    team = tmp_path / "team"
    write(team / "a.pub", THEIRS.public.to_text(), 0o666)
    team.chmod(0o1777)
    assert "decide whose code runs here" in wrong(KeySources(trusted_paths=(team,)))
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    script = ["unshare", "--mount", "sh", "-c", IN_A_READ_ONLY_MOUNT, "sh", str(team), sys.executable, LOADED]
    done = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode in (1, 77) and "Traceback" not in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def test_bad_texts() -> None:
    assert wrong(KeySources(trusted_texts=(THEIRS.public.to_text(), MINE.to_text()))).startswith("trusted key 2: ")
    assert wrong(KeySources(signing_text=THEIRS.public.to_text())).startswith("the signing key: ")
    assert "its id, 32 hexadecimal digits" in wrong(KeySources(revoked=(MINE.id[:-1],)))


def test_a_key_that_goes_while_the_folder_is_read(folder: Path) -> None:
    """Keys come and go beside readers: each reader has those that stayed, and no error."""
    stop = threading.Event()

    def turn_over() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            path = folder / "trusted" / f"{number % 7}.pub"
            temporary = path.with_suffix(".tmp")
            write(temporary, OTHERS.public.to_text())
            temporary.rename(path)
            path.unlink()

    thread = threading.Thread(target=turn_over)
    thread.start()
    try:
        for _ in range(300):
            assert set(load(KeySources(folder=folder)).trusted) >= {THEIRS.id, SHARED.id}
    finally:
        stop.set()
        thread.join()


# -- commands ------------------------------------------------------------------------------------------------------


def python(source: str, *argv: str) -> tuple[str, ...]:
    return (sys.executable, "-c", source, *argv)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write(tmp_path / "key", MINE.to_text())


COUNTING = "import sys, time; open(sys.argv[1], 'a').write('x'); time.sleep(.2); print(open(sys.argv[2]).read())"


def test_a_command_runs_when_a_key_is_needed_and_once(tmp_path: Path, key_file: Path) -> None:
    calls = tmp_path / "calls"
    keyring = load(KeySources(signing_command=python(COUNTING, str(calls), str(key_file)), folder=tmp_path / "no"))
    assert not calls.exists()
    keys: list[object] = []
    threads = [threading.Thread(target=lambda: keys.append(keyring.signing_key())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls.read_text() == "x"
    assert len(set(map(id, keys))) == 1
    assert refusal(by(MINE), keyring) is None


def test_the_own_key_of_a_command_is_trusted_without_signing_first(tmp_path: Path, key_file: Path) -> None:
    calls = tmp_path / "calls"
    command = python(COUNTING, str(calls), str(key_file))
    keyring = load(KeySources(signing_command=command, trusted_texts=(THEIRS.public.to_text(),)))
    assert refusal(by(THEIRS), keyring) is None
    assert not calls.exists()
    assert refusal(by(MINE), keyring) is None
    assert refusal(by(OTHERS), keyring) == errors.STRANGER
    assert calls.read_text() == "x"


BAD_COMMANDS = {
    "fails": (python("print('rewarm-'); raise SystemExit(3)"), "exit code 3"),
    "dies": (python("import os; os.kill(os.getpid(), 9)"), "exit code -9"),
    "prints nothing": (python(""), "something else"),
    "prints garbage": (python("import os, sys; sys.stdout.buffer.write(os.urandom(5000))"), "found "),
    "prints for ever": (python("import sys\nwhile True: sys.stdout.write('rewarm-' * 9999)"), "more than 64 KiB"),
    "prints a public key": (python(f"print({THEIRS.public.to_text()!r})"), "public half"),
    "prints two keys": (python(f"print({MINE.to_text()!r}); print({MINE.to_text()!r})"), "found several lines"),
    "is not there": (("/no/such/program", MINE.to_text()), "cannot be run (No such file or directory)"),
    "is a folder": (("/",), "cannot be run (Permission denied)"),
    "has a zero byte": (("a\0b",), "cannot be run (ValueError)"),
    "is empty": (("",), "cannot be run"),
    "is a whole line": ((f"echo {MINE.to_text()}",), "cannot be run (No such file or directory)"),
}


@pytest.mark.parametrize("name", list(BAD_COMMANDS))
def test_commands_that_do_not_give_a_key(name: str, tmp_path: Path) -> None:
    command, found = BAD_COMMANDS[name]
    keyring = load(KeySources(signing_command=command))
    begin = time.monotonic()
    for _ in range(3):
        with pytest.raises(UnusableKeyError) as caught:
            keyring.signing_key()
        assert found in str(caught.value)
        assert str(caught.value).startswith(f"the command {(command[0].split() or ['?'])[0]} for the signing key: ")
        check_no_secret("".join(traceback.format_exception(caught.value)))
    assert time.monotonic() - begin < 5
    # A reader is told the same in its own way; what other keys have signed is read as ever.
    for posture in Posture:
        assert refusal(by(MINE), keyring, posture) == errors.UNCHECKABLE
    keyring = load(KeySources(signing_command=command, trusted_texts=(THEIRS.public.to_text(),)))
    assert refusal(by(THEIRS), keyring) is None


def test_a_command_that_failed_is_not_run_again(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    failing = "import sys; open(sys.argv[1], 'a').write('x'); raise SystemExit(1)"
    keyring = load(KeySources(signing_command=python(failing, str(calls))))
    assert [refusal(by(MINE), keyring) for _ in range(3)] == [errors.UNCHECKABLE] * 3
    with pytest.raises(UnusableKeyError, match="exit code 1"):
        keyring.signing_key()
    assert calls.read_text() == "x"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """Where a command says which processes there are; those that are left are ended."""
    path = tmp_path / "pids"
    path.touch()
    yield path
    for pid in path.read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), 9)


HANGS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}\\n")
print("rewarm-", flush=True)
time.sleep(60)
"""


def test_a_command_that_hangs_is_ended_with_its_children(pids: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(UnusableKeyError, match=r"had not ended after 1\.5 s"):
        output_of(python(HANGS, str(pids)), "x", 1.5)
    assert 1.4 < time.monotonic() - begin < 3.5
    until = time.monotonic() + 5
    while any(is_running(int(pid)) for pid in pids.read_text().split()) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(is_running(int(pid)) for pid in pids.read_text().split())


def test_a_command_that_closes_its_output_and_stays(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(UnusableKeyError, match="had not ended after 1 s"):
        output_of(python("import os, time; os.close(1); time.sleep(60)"), "x", 1.0)
    assert time.monotonic() - begin < 3


LEAVES = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
print("the key")
"""


def test_a_child_that_keeps_the_output_open_holds_nobody(pids: Path) -> None:
    begin = time.monotonic()
    assert output_of(python(LEAVES, str(pids)), "x") == "the key\n"
    assert time.monotonic() - begin < 4


def test_much_output_up_to_the_limit() -> None:
    assert len(output_of(python("print('x' * 65535)"), "x")) == 65536
    with pytest.raises(UnusableKeyError, match="more than 64 KiB"):
        output_of(python("print('x' * 65536)"), "x")


def test_a_command_has_no_input_no_shell_and_no_terminal() -> None:
    source = """
import sys
try:
    open("/dev/tty")
    terminal = "a terminal"
except OSError:
    terminal = "none"
print(repr(sys.stdin.read()), sys.argv[1:], terminal)
"""
    argument = "$HOME; `id` *"
    assert output_of(python(source, argument), "x") == f"'' [{argument!r}] none\n"


AT_EXIT = """
import atexit, sys, threading
from signed_entries import *
from rewarm.trust import KeySources, load
keyring = load(KeySources(signing_command=("cat", sys.argv[1])))
def late():
    print(keyring.signing_key().id)
atexit.register(late)
threading._register_atexit(lambda: None)
"""


def test_the_first_signature_at_the_end_of_a_program(program: Program, key_file: Path) -> None:
    run = program(AT_EXIT, str(key_file), PYTHONPATH=str(Path(__file__).parent))
    assert run.out == f"{MINE.id}\n"


def test_who_waits_for_another_s_command_waits_no_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a child that was forked while the command ran: nobody will ever open that lock."""
    assert keyring_module._WAIT > key_command.DEADLINE + 1.0
    monkeypatch.setattr(keyring_module, "_WAIT", 0.2)
    keyring = Keyring(lambda: MINE)
    keyring._lock.acquire()
    begin = time.monotonic()
    for _ in range(3):
        with pytest.raises(UnusableKeyError, match="the signing key: expected an answer, found none after 0 s"):
            keyring.signing_key()
    assert time.monotonic() - begin < 1

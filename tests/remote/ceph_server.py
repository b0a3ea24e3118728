"""S3 by a real Ceph gateway on loopback: one monitor, one storage daemon in memory, one gateway, in one folder.

Not promised: speed, or that anything stays. Three daemons in the foreground, ended in the order in which they need one
another: the gateway first, the monitor last.
https://docs.ceph.com/en/latest/install/manual-deployment/
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("radosgw", "radosgw-admin", "ceph-mon", "ceph-osd", "ceph", "ceph-authtool", "monmaptool")

_POOLS = (
    ".rgw.root",
    "default.rgw.log",
    "default.rgw.control",
    "default.rgw.meta",
    "default.rgw.buckets.index",
    "default.rgw.buckets.data",
    "default.rgw.buckets.non-ec",
)

# tcp_nodelay: without it each small answer waits for 40 ms.
_CONFIG = """
[global]
fsid = {fsid}
run_dir = {folder}
keyring = {folder}/keyring
log_file = {folder}/$name.log
admin_socket = {folder}/$name.asok
pid_file = {folder}/$name.pid
mon_host = 127.0.0.1:{mon}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
osd_crush_chooseleaf_type = 0
[mon.a]
host = localhost
mon_data = {folder}/mon
mon_addr = 127.0.0.1:{mon}
[osd.0]
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = 1073741824
[client.rgw]
rgw_frontends = beast endpoint=127.0.0.1:{rgw} tcp_nodelay=1
rgw_data = {folder}/rgw
"""


@contextmanager
def running(folder: Path, key: str, secret: str, free_port: Callable[[], int]) -> Iterator[int]:
    """The port of a gateway with one user."""
    with ExitStack() as stack:
        yield _Cluster(folder, stack).start(key, secret, free_port(), free_port())


class _Cluster:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._config = f"{folder}/ceph.conf"

    def start(self, key: str, secret: str, mon: int, rgw: int) -> int:
        for name in ("mon", "osd", "rgw"):
            (self._folder / name).mkdir()
        fields = {"fsid": uuid.uuid4(), "folder": self._folder, "mon": mon, "rgw": rgw}
        Path(self._config).write_text(_CONFIG.format(**fields))
        self._make_keys()
        self._start_monitor(mon)
        self._start_storage()
        for pool in _POOLS:
            self._ceph("osd", "pool", "create", pool, "4", "4")
        user = ["--uid=t", "--display-name=t", f"--access-key={key}", f"--secret-key={secret}"]
        self._run("radosgw-admin", "-c", self._config, "-n", "client.rgw", "user", "create", *user)
        self._daemon("radosgw", "-n", "client.rgw")
        return rgw

    def _make_keys(self) -> None:
        everything = ("--cap", "mon", "allow *")
        rights = {
            "mon.": everything,
            "client.admin": (*everything, "--cap", "osd", "allow *"),
            "osd.0": ("--cap", "mon", "allow profile osd", "--cap", "osd", "allow *"),
            "client.rgw": ("--cap", "mon", "allow rwx", "--cap", "osd", "allow rwx"),
        }
        for number, (name, caps) in enumerate(rights.items()):
            new = ["-C"] if number == 0 else []
            self._run("ceph-authtool", *new, f"{self._folder}/keyring", "--gen-key", "-n", name, *caps)

    def _start_monitor(self, port: int) -> None:
        fsid = ["--fsid", self._fsid()]
        self._run("monmaptool", "--create", "--add", "a", f"127.0.0.1:{port}", *fsid, f"{self._folder}/monmap")
        made = ["--mkfs", "--monmap", f"{self._folder}/monmap", "--keyring", f"{self._folder}/keyring"]
        self._run("ceph-mon", "-c", self._config, "-i", "a", *made)
        self._daemon("ceph-mon", "-i", "a")

    def _start_storage(self) -> None:
        self._ceph("osd", "create")
        self._ceph("auth", "import", "-i", f"{self._folder}/keyring")
        self._run("ceph-osd", "-c", self._config, "-i", "0", "--mkfs")
        self._daemon("ceph-osd", "-i", "0")
        self._ceph("osd", "crush", "add", "osd.0", "1.0", "host=localhost", "root=default")

    def _fsid(self) -> str:
        (line,) = [line for line in Path(self._config).read_text().splitlines() if line.startswith("fsid")]
        return line.partition("= ")[2]

    def _ceph(self, *arguments: str) -> None:
        self._run("ceph", "-c", self._config, "--connect-timeout", "20", *arguments)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=self._folder)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-400:]}")

    def _daemon(self, program: str, *arguments: str) -> None:
        command: Sequence[str] = [program, "-c", self._config, "-f", *arguments]
        with (self._folder / f"{program}.out").open("ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=self._folder)
        self._stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def make_bucket(port: int, name: str, key: str, secret: str) -> None:
    """One signed request, by boto3, once the gateway answers."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
    )
    end = time.monotonic() + 40
    while True:
        try:
            client.create_bucket(Bucket=name)
            return
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.25)

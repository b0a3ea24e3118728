"""Identities that a platform gives to a workload: its own services on loopback hand out credentials, in its forms.

The services are small HTTP servers that answer as the platform's documentation says and keep what they were asked. What
is held against them is what the store behind gets to see.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from servers import Server

from rewarm.remote import address
from rewarm.remote.objects import ObjectBlobs

pytest_plugins = ["remote_fixtures"]

pytestmark = pytest.mark.usefixtures("clean_clients")
NAME = "ns/aa/" + "a" * 64
FOREVER = "2099-01-01T00:00:00Z"


class Service:
    """Answers a path with what was put down for it, and keeps every request: method, path, authorization, body."""

    def __init__(self, answers: dict[str, str], certificate: tuple[Path, Path] | None = None) -> None:
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                service.asked.append((self.command, self.path, headers, body))
                said = answers.get(self.path.partition("?")[0], "").encode()
                self.send_response(201 if self.command == "PUT" else 200)
                self.send_header("Content-Length", str(len(said)))
                self.send_header("ETag", '"1"')
                self.end_headers()
                self.wfile.write(said)

            do_GET = do_PUT = do_POST = answer  # noqa: N815 - the class's names

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def of(self, path: str) -> list[tuple[str, str, dict[str, str], str]]:
        """The requests for this path."""
        return [one for one in self.asked if one[1].partition("?")[0] == path]


@pytest.fixture
def service() -> Iterator[Callable[..., Service]]:
    started: list[Service] = []

    def start(*arguments: object) -> Service:
        started.append(Service(*arguments))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Certificate and key of a server on 127.0.0.1 that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = tmp_path / "certificate.pem", tmp_path / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def opened(text: str) -> ObjectBlobs:
    return ObjectBlobs(address.parse(text))


def test_the_credentials_of_a_container_on_aws(
    server: Callable[[str], Server],
    service: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
    given = {"AccessKeyId": "ASIAGIVEN", "SecretAccessKey": "secret", "Token": "session", "Expiration": FOREVER}
    agent = service({"/creds": json.dumps(given)})
    (tmp_path / "token").write_text("of-the-pod")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{agent.url}/creds")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", f"{tmp_path}/token")
    store = service({f"/cache/{NAME}": "data"})
    blobs = opened(f"s3://cache?endpoint={store.url}&region=us-east-1")
    assert blobs.put(NAME, b"data")
    assert [one[2]["authorization"] for one in agent.of("/creds")] == ["of-the-pod"]
    [(method, _, headers, body)] = store.of(f"/cache/{NAME}")
    assert (method, body, headers["x-amz-security-token"]) == ("PUT", "data", "session")
    assert "Credential=ASIAGIVEN/" in headers["authorization"]
    # And with a server that is S3.
    moto = server("moto")
    real = opened(f"{moto.url}/identity?endpoint={moto.options['endpoint']}&region=us-east-1")
    assert real.put(NAME, b"data")
    assert real.get(NAME, limit=10) == b"data"


def test_a_web_identity_on_aws(
    service: Callable[..., Service],
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
    given = (
        '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIAROLE</AccessKeyId>"
        "<SecretAccessKey>secret</SecretAccessKey><SessionToken>session</SessionToken>"
        f"<Expiration>{FOREVER}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
        "</AssumeRoleWithWebIdentityResponse>"
    )
    sts = service({"/": given}, certificate)
    store = service({}, certificate)
    (tmp_path / "token").write_text("of-the-cluster")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", f"{tmp_path}/token")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
    blobs = opened(f"s3://cache?endpoint={store.url}&region=us-east-1&root_certificate={certificate[0]}")
    assert blobs.put(NAME, b"data")
    [(method, path, _, body)] = sts.asked
    assert method == "POST"
    assert "Action=AssumeRoleWithWebIdentity" in path + body
    assert "WebIdentityToken=of-the-cluster" in path + body
    [(_, _, headers, _)] = store.of(f"/cache/{NAME}")
    assert "Credential=ASIAROLE/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "session"


def test_a_managed_identity_on_azure(service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch) -> None:
    # https://learn.microsoft.com/azure/app-service/overview-managed-identity (REST)
    given = {"access_token": "of-azure", "expires_on": "4102444800", "expires_in": "3600", "token_type": "Bearer"}
    identity = service({"/msi": json.dumps(given)})
    store = service({})
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{identity.url}/msi")
    monkeypatch.setenv("IDENTITY_HEADER", "of-the-app")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    assert opened(f"az://container/p?endpoint={store.url}").put(NAME, b"data")
    assert [one[2]["x-identity-header"] for one in identity.of("/msi")] == ["of-the-app"]
    [(_, path, headers, _)] = store.asked
    assert NAME in path
    assert headers["authorization"] == "Bearer of-azure"


def test_a_federated_token_on_azure(
    service: Callable[..., Service],
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # https://azure.github.io/azure-workload-identity/docs/
    given = {"access_token": "of-entra", "expires_in": 3600, "token_type": "Bearer"}
    authority = service({"/tenant/oauth2/v2.0/token": json.dumps(given)}, certificate)
    store = service({}, certificate)
    (tmp_path / "token").write_text("of-the-cluster")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", f"{tmp_path}/token")
    monkeypatch.setenv("AZURE_CLIENT_ID", "client")
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", authority.url)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    assert opened(f"az://container/p?endpoint={store.url}&root_certificate={certificate[0]}").put(NAME, b"data")
    [(_, _, _, body)] = authority.asked
    assert "client_assertion=of-the-cluster" in body
    [(_, _, headers, _)] = store.asked
    assert headers["authorization"] == "Bearer of-entra"


def test_credentials_of_the_environment_do_not_go_to_a_server_that_is_not_googles(
    service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    user = {"client_id": "id", "client_secret": "secret", "refresh_token": "refresh", "type": "authorized_user"}
    (tmp_path / "adc.json").write_text(json.dumps(user))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", f"{tmp_path}/adc.json")
    store = service({})
    assert opened(f"gs://bucket?endpoint={store.url}").put(NAME, b"data")
    [(_, _, headers, _)] = store.asked
    assert "refresh" not in json.dumps(headers)
    assert headers.get("authorization", "").strip() in ("", "Bearer")

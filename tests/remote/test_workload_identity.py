"""Identities that a platform gives to a workload: its own services on loopback hand out credentials, in its forms.

The services are small HTTP servers that answer as the platform's documentation says and keep what they were asked. What
is held against them is what the store behind gets to see.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from servers import AZURE_KEY, Server

from rewarm.remote import address, azure_strings
from rewarm.remote.blobs import RefusedError
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


# -- credentials that the client does not know -----------------------------------------------------------------------


def federated(folder: Path, url: str, **more: object) -> Path:
    """A file of workload identity federation, whose token comes from a file and is exchanged at `url`.

    https://google.aip.dev/auth/4117
    """
    (folder / "token").write_text("of-the-cluster")
    said = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{url}/v1/token",
        "credential_source": {"file": f"{folder}/token"},
    }
    (folder / "adc.json").write_text(json.dumps({**said, **more}))
    return folder / "adc.json"


@pytest.mark.parametrize("way", ["environment", "address"])
def test_a_federated_identity_on_google(
    service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    pytest.importorskip("google.auth", reason="no google-auth (pip install google-auth requests)")
    token = {"access_token": "of-google", "issued_token_type": "urn:x", "token_type": "Bearer", "expires_in": 3600}
    exchange, store = service({"/v1/token": json.dumps(token)}), service({})
    path = federated(tmp_path, exchange.url)
    if way == "environment":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    query = f"&application_credentials={path}" if way == "address" else ""
    # By the option's other name: what is meant is Google's own server, which here is one on loopback.
    monkeypatch.setenv("GOOGLE_BASE_URL", store.url)
    blobs = opened(f"gs://bucket?deadline=5{query}")
    for _ in range(2):
        assert blobs.put(NAME, b"data")
    [(_, _, _, body)] = exchange.asked
    assert "subject_token=of-the-cluster" in body
    assert "devstorage.read_write" in body
    assert [headers["authorization"] for _, _, headers, _ in store.asked] == ["Bearer of-google"] * 2


def test_a_federated_identity_without_googles_library_says_what_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(federated(tmp_path, "http://127.0.0.1:9")))
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(RefusedError, match=r"of type external_account need google-auth .*rewarm\[google\]"):
        opened("gs://bucket").put(NAME, b"data")


def test_a_file_of_google_s_that_is_wrong_is_an_error_that_shows_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for kind, text in (("nonsense", "of type nonsense"), (7, "not in Google.s JSON")):
        path = federated(tmp_path, "http://secret.invalid", type=kind)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        with pytest.raises(RefusedError, match=text) as caught:
            opened("gs://bucket").put(NAME, b"data")
        assert "secret" not in caught.value.reason


def connection_string(**parts: str) -> str:
    return ";".join(f"{name}={value}" for name, value in parts.items())


def test_a_connection_string_of_azure(server: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a server of Azure's protocol: the key is the right one, or it refuses."""
    azurite = server("azurite")
    parts = {"AccountName": "tests", "AccountKey": AZURE_KEY, "BlobEndpoint": azurite.options["endpoint"]}
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string(**parts))
    blobs = opened(f"{azurite.url}/strings")
    assert blobs.put(NAME, b"data")
    assert blobs.get(NAME, limit=10) == b"data"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string(**{**parts, "AccountKey": "d3Jvbmc="}))
    with pytest.raises(RefusedError, match="403"):
        opened(f"{azurite.url}/strings").put(NAME, b"data")
    assert (
        opened(
            f"{azurite.url}/strings?account_key={AZURE_KEY}&account_name=tests&endpoint={azurite.options['endpoint']}"
        ).get(NAME, limit=10)
        == b"data"
    ), "what the address says counts more"


def test_a_shared_access_signature_in_a_connection_string(
    service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = service({})
    text = connection_string(BlobEndpoint=store.url, AccountName="acct", SharedAccessSignature="?sv=2024&sig=abc%3D")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert opened("az://container/p").put(NAME, b"data")
    [(_, path, headers, _)] = store.asked
    assert path.startswith(f"/container/p/{NAME}?")
    assert {"sv=2024", "sig=abc%3D"} <= set(path.partition("?")[2].split("&"))
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("AccountName=a;AccountKey=a2V5", {"account_name": "a", "account_key": "a2V5"}),
        (
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=a2V5==;EndpointSuffix=core.chinacloudapi.cn",
            {"account_name": "a", "account_key": "a2V5==", "endpoint": "https://a.blob.core.chinacloudapi.cn"},
        ),
        (
            " defaultendpointsprotocol = http ; accountname=a; AccountKey=a2V5; ",
            {"account_name": "a", "account_key": "a2V5", "endpoint": "http://a.blob.core.windows.net"},
        ),
        (
            "BlobEndpoint=https://acct.blob.core.windows.net/;QueueEndpoint=x;SharedAccessSignature=sv=1&sig=x%3D",
            {"account_name": "acct", "endpoint": "https://acct.blob.core.windows.net", "sas_key": "sv=1&sig=x%3D"},
        ),
        ("UseDevelopmentStorage=true", {"use_emulator": "true"}),
    ],
)
def test_the_forms_of_a_connection_string(text: str, options: dict[str, str]) -> None:
    assert azure_strings.options_in(text) == options


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("AccountKey=c2VjcmV0", "it names no account"),
        ("AccountName=a", "neither an AccountKey nor a SharedAccessSignature"),
        ("c2VjcmV0", "no list of name=value"),
        ("BlobEndpoint=https://10.0.0.1/a;SharedAccessSignature=c2VjcmV0", "it names no account"),
        ("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://c2VjcmV0", "DevelopmentStorageProxyUri"),
    ],
)
def test_other_forms_of_it_are_a_clear_error(text: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    with pytest.raises(RefusedError, match=f"AZURE_STORAGE_CONNECTION_STRING cannot be used: .*{reason}") as caught:
        opened("az://container/p").put(NAME, b"data")
    assert "c2VjcmV0" not in caught.value.reason

"""What tells one place from another: two that hold different blobs are never taken for one."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings, strategies

from rewarm.remote.address import Address, parse
from rewarm.remote.object_stores import open_store
from rewarm.remote.redis_blobs import RedisBlobs

SECRET = base64.b64encode(b"s3cr3t-VALUE").decode()
URLS = strategies.sampled_from(["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:2/a"])
YES = strategies.sampled_from(["true", "false"])
NAMES = strategies.sampled_from(["one", "two"])


def identity(text: str, environment: Mapping[str, str]) -> str:
    with mock.patch.dict(os.environ, environment):
        return parse(text).identity


def signed_place(text: str, environment: Mapping[str, str]) -> str:
    """Where obstore itself goes: the URL of a request that it signs, without query; nobody is asked."""
    obstore = pytest.importorskip("obstore")
    with mock.patch.dict(os.environ, environment):
        return str(obstore.sign(open_store(parse(text)), "GET", "x", timedelta(60))).split("?")[0]


def some(**values: strategies.SearchStrategy[str]) -> strategies.SearchStrategy[dict[str, str]]:
    return strategies.fixed_dictionaries({}, optional=values)


def spelled(scheme: str, host: str, options: Mapping[str, str]) -> str:
    return f"{scheme}://{host}?{'&'.join(f'{name}={value}' for name, value in options.items())}"


S3 = some(endpoint=URLS, region=NAMES, virtual_hosted=YES)
S3_VARIABLES = some(
    AWS_ENDPOINT_URL=URLS,
    AWS_ENDPOINT_URL_S3=URLS,
    AWS_ENDPOINT=URLS,
    AWS_REGION=NAMES,
    AWS_DEFAULT_REGION=NAMES,
    AWS_VIRTUAL_HOSTED_STYLE_REQUEST=YES,
)
AZURE = some(endpoint=URLS, use_emulator=YES, use_fabric_endpoint=YES)
AZURE_VARIABLES = some(
    AZURE_STORAGE_ACCOUNT_NAME=NAMES,
    AZURE_STORAGE_ENDPOINT=URLS,
    AZURE_ENDPOINT=URLS,
    AZURE_STORAGE_USE_EMULATOR=YES,
    AZURITE_BLOB_STORAGE_URL=URLS,
    AZURE_USE_FABRIC_ENDPOINT=YES,
)
KEYS = {"s3": {"access_key_id": "me", "secret_access_key": SECRET}, "az": {"account_key": SECRET}}


def places() -> strategies.SearchStrategy[list[tuple[str, dict[str, str]]]]:
    """Addresses of one scheme, each with the environment that it is used in."""
    account = {"account_name": "account"}

    def of(scheme: str, options: Any, variables: Any) -> Any:
        return strategies.lists(
            strategies.tuples(
                strategies.builds(
                    lambda host, said: spelled(scheme, host, {**said, **KEYS[scheme]}),
                    strategies.sampled_from(["bucket", "other/p"]),
                    options,
                ),
                variables,
            ),
            min_size=2,
            max_size=12,
        )

    named = AZURE.map(lambda said: said | account)
    unnamed = AZURE_VARIABLES.map(lambda found: {"AZURE_STORAGE_ACCOUNT_NAME": "account", **found})
    return of("s3", S3, S3_VARIABLES) | of("az", named, AZURE_VARIABLES) | of("az", AZURE, unnamed)


@settings(max_examples=60, deadline=None)
@given(places())
def test_where_a_client_goes_to_another_place_it_is_another(said: list[tuple[str, dict[str, str]]]) -> None:
    pytest.importorskip("obstore")
    known: dict[str, str] = {}
    for text, environment in said:
        text_of = identity(text, environment)
        assert SECRET not in text_of
        assert known.setdefault(text_of, signed_place(text, environment)) == signed_place(text, environment)


@settings(max_examples=100, deadline=None)
@given(
    strategies.lists(
        strategies.tuples(
            strategies.sampled_from(["h", "h/3", "h/3/x", "h/x", "h:1"]),
            some(db=strategies.sampled_from("034"), prefix=strategies.sampled_from(["x", "y", "x%20db%3D3", "db=3"])),
        ),
        min_size=2,
        max_size=12,
    )
)
def test_databases_and_prefixes_of_redis_are_places(said: list[tuple[str, dict[str, str]]]) -> None:
    known: dict[str, str] = {}
    for host, options in said:
        address = parse(spelled("redis", host, options))
        place = RedisBlobs.of(address).place
        assert known.setdefault(address.identity, place) == place


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("redis://h?db=3", "redis://h?db=4"),
        ("redis://h?prefix=x", "redis://h?prefix=y"),
        ("redis://h", "rediss://h"),
        ("s3://b?endpoint=http://x", "s3://b?endpoint=http://y"),
        ("s3://b?endpoint=http://x&virtual_hosted=true", "s3://b?endpoint=http://x"),
        ("s3://b?region=cn-north-1", "s3://b?region=eu-west-1"),
        ("az://c?account_name=x", "az://c?account_name=y"),
        ("abfs://c@x.blob.core.windows.net", "abfs://c@y.blob.core.windows.net"),
        ("az://c?account_name=x&use_emulator=true", "az://c?account_name=x"),
        ("gs://b?endpoint=http://x", "gs://b"),
        ("http://h/a", "http://h/b"),
        ("file:///a", "file:///b"),
    ],
)
def test_two_places_have_two_identities(one: str, other: str) -> None:
    assert parse(one).identity != parse(other).identity


@pytest.mark.parametrize(
    ("text", "variable", "values"),
    [
        ("s3://b", "AWS_ENDPOINT_URL", ("http://x", "http://y")),
        ("az://c", "AZURE_STORAGE_ACCOUNT_NAME", ("x", "y")),
        ("az://c", "AZURE_STORAGE_USE_EMULATOR", ("true", "")),
        ("az://c", "AZURE_STORAGE_CONNECTION_STRING", ("AccountName=x;AccountKey=s==", "AccountName=y;AccountKey=s==")),
        ("gs://b", "GOOGLE_BASE_URL", ("http://x", "http://y")),
        ("gs://b", "GOOGLE_SERVICE_ACCOUNT_KEY", ('{"gcs_base_url": "http://x"}', '{"gcs_base_url": "http://y"}')),
    ],
)
def test_what_clients_read_in_the_environment_says_where_it_is(
    text: str, variable: str, values: tuple[str, str]
) -> None:
    one, other, none = [identity(text, {variable: value}) for value in (*values, "")]
    assert one != other
    assert one != none
    assert identity(text, {variable: values[0]}) == one


def test_a_key_file_of_google_may_name_the_server(tmp_path: Path) -> None:
    seen = {identity(f"gs://b?service_account={tmp_path}/key", {})}
    for server in ("http://x", "http://y"):
        (tmp_path / "key").write_text(json.dumps({"gcs_base_url": server, "private_key": SECRET}))
        seen.add(identity(f"gs://b?service_account={tmp_path}/key", {}))
        assert seen >= {identity("gs://b", {"GOOGLE_SERVICE_ACCOUNT": f"{tmp_path}/key"})}
    assert len(seen) == 3
    assert not any(SECRET in one for one in seen)


@pytest.mark.parametrize(
    ("one", "other", "environment"),
    [
        ("s3://b?secret_access_key=x", "s3://b?secret_access_key=y", {"AWS_SECRET_ACCESS_KEY": SECRET}),
        ("redis://:x@h", "redis://:y@h", {}),
        ("az://c?account_name=a&account_key=x", "az://c?account_name=a&account_key=y", {}),
        ("http://u:x@h?deadline=1", "http://h?write=no", {}),
    ],
)
def test_a_new_password_is_the_same_place(one: str, other: str, environment: dict[str, str]) -> None:
    assert parse(one).identity == identity(other, environment)


def test_a_new_key_in_a_connection_string_is_the_same_place() -> None:
    said = [{"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=x;AccountKey={key}"} for key in ("a==", "b==")]
    assert identity("az://c", said[0]) == identity("az://c", said[1])
    assert "a==" not in identity("az://c", said[0])


def test_the_endpoint_of_an_address_counts_more_than_the_environment() -> None:
    address = f"s3://b?endpoint=http://127.0.0.1:7&access_key_id=me&secret_access_key={SECRET}"
    environment = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:8", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    assert signed_place(address, environment) == "http://127.0.0.1:7/b/x"
    assert identity(address, environment) == parse(address).identity


def test_an_address_that_was_made_by_hand_has_an_identity() -> None:
    assert Address("file", "file:///a").identity == "file:///a"

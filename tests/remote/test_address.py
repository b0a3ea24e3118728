"""One tier as the user spells it."""

from __future__ import annotations

import dataclasses
import pickle
import traceback
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings, strategies

from rewarm.remote.address import SCHEMES, Address, parse, parse_list

SECRET = "s3cr3t-VALUE"


def test_the_example_of_the_documentation() -> None:
    address = parse("s3://bucket/prefix?trust=verify&write=no&region=eu-west-1&endpoint=http://127.0.0.1:9000")
    assert address == Address(
        scheme="s3",
        url="s3://bucket/prefix",
        trust="verify",
        write=False,
        options={"region": "eu-west-1", "endpoint": "http://127.0.0.1:9000"},
    )
    assert (address.host, address.path) == ("bucket", "prefix")
    assert str(address) == "s3://bucket/prefix"


def test_what_is_not_said() -> None:
    address = parse(" s3://bucket ")
    assert (address.trust, address.write, address.deadline, address.errors) == ("require", True, 5.0, "warn")
    assert (dict(address.options), address.path) == ({}, "")


@pytest.mark.parametrize(
    ("text", "scheme", "url"),
    [
        ("S3://Bucket/a/", "s3", "s3://Bucket/a"),
        ("gs://bucket", "gs", "gs://bucket"),
        ("azure://container/p", "az", "az://container/p"),
        ("abfs://container/p", "az", "az://container/p"),
        ("http://host:8080/a/b", "http", "http://host:8080/a/b"),
        ("https://[::1]:8443", "https", "https://[::1]:8443"),
        ("valkey://host:6379/0", "redis", "redis://host:6379/0"),
        ("valkeys://host", "rediss", "rediss://host"),
        ("file:///shared/a%20b", "file", "file:///shared/a%20b"),
    ],
)
def test_kinds_and_their_aliases(text: str, scheme: str, url: str) -> None:
    address = parse(text)
    assert (address.scheme, address.url) == (scheme, url)
    assert parse(address.url) == address


def test_what_is_spelled_with_percent() -> None:
    assert parse("file:///a%20b%2Cc").path == "/a b,c"
    assert parse("s3://b/a%20b").path == "a b"
    assert parse("s3://b?secret_access_key=a+b%2Fc%3D%26%20d").options["secret_access_key"] == "a+b/c=& d"


def test_credentials_before_the_host() -> None:
    assert parse("s3://ID:se%2Fcret@b").options == {"access_key_id": "ID", "secret_access_key": "se/cret"}
    assert parse("https://me:pw@h/c").options == {"username": "me", "password": "pw"}
    assert parse("redis://:pw@h").options == {"password": "pw"}
    assert parse("az://name:key==@c").options == {"account_name": "name", "account_key": "key=="}


def test_azures_own_spelling() -> None:
    address = parse("abfss://container@account.dfs.core.windows.net/p")
    assert (address.url, address.options) == ("az://container/p", {"account_name": "account"})


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("0.5", 0.5), ("2s", 2.0), ("1min", 60.0), ("600", 600.0)])
def test_deadlines(text: str, seconds: float) -> None:
    assert parse(f"s3://b?deadline={text}").deadline == seconds


def test_lists() -> None:
    addresses = parse_list("s3://a?write=no, file:///b%2Cc ,,http://d")
    assert [address.url for address in addresses] == ["s3://a", "file:///b%2Cc", "http://d"]
    assert parse_list("") == parse_list(" , ") == ()


HOSTED = ("http", "https", "redis", "rediss", "valkey", "valkeys")


@pytest.mark.parametrize("text", ["http://[::1]:8080/x", "redis://[fe80::1]/0", "https://h:65535", "http://h:1"])
def test_hosts_that_are_some(text: str) -> None:
    urlsplit(parse(text).url).port  # noqa: B018 - what raises where the host is none


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a remote is a URL such as s3://bucket/prefix"),
        ("/shared/dir", "file:///shared/dir"),
        ("s3a://b", "'s3a'; did you mean 's3'?"),
        ("s3://", "followed by a bucket, found nothing"),
        ("file://dir", "three slashes, found two"),
        ("file:///", "found no path"),
        ("s3://b/../c", "none of them '.' or '..'"),
        ("s3://b/%2e%2e/c", "none of them '.' or '..'"),
        ("s3://b/a%2Fb", "names between slashes"),
        ("s3://b/a//b", "names between slashes"),
        ("s3://b?trsut=require", "s3://b has no option 'trsut'; did you mean 'trust'? Its options are trust, write"),
        ("s3://b?token=x", "s3://b has no option 'token'. Its options are trust, write, ranks, deadline"),
        ("s3://b?trust=verfy", "one of require, verify, store, found 'verfy'; did you mean 'verify'?"),
        ("s3://b?errors=strict", "one of ignore, warn, fail, found 'strict'"),
        ("s3://b?write=maybe", "yes or no"),
        ("s3://b?deadline=0", "seconds from 0.05 to 600, found '0'"),
        ("s3://b?deadline=none", "seconds from 0.05 to 600"),
        ("s3://b?deadline=1h", "seconds from 0.05 to 600, found '1h'"),
        ("s3://b?region=a&region=b", "'region' once"),
        ("s3://b?region=", "a value for 'region', found none"),
        ("s3://b?region", "takes name=value"),
        ("s3://b?endpoint=127.0.0.1:9000", "http:// or https://"),
        ("s3://b#c", "takes no '#'"),
        ("gs://me:pw@b", "takes no user name and password"),
        ("s3://ID:x@b?secret_access_key=y", "in the query and before the '@'"),
        ("abfs://c@a.example.com", "az://container?account_name=NAME"),
        ("s3://b?ranks=some", "one of first, all, found 'some'"),
        *((f"{scheme}://h:99999", "found port 99999 (ports go from 1 to 65535)") for scheme in HOSTED),
        *((f"{scheme}://h:0/x", "found port 0") for scheme in HOSTED),
        *((f"{scheme}://[12::3::4]:80", "that is no IPv6 address") for scheme in HOSTED),
        *((f"{scheme}://[1.2.3.4]", "that is no IPv6 address") for scheme in HOSTED),
        *((f"{name}://b?endpoint=http://h:70000", "http:// or https:// with a host") for name in ("s3", "gs", "az")),
        ("s3://b?endpoint=http://[zz]:1", "http:// or https:// with a host"),
    ],
)
def test_mistakes_are_one_sentence(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        parse(text)
    assert words in str(caught.value)


# Each is a way of writing a secret where it belongs, or where it does not.
SPELLINGS = [
    "s3://ID:{}@bucket/prefix",
    "s3://{}:x@bucket/prefix",
    "s3://bucket?secret_access_key={}",
    "s3://bucket?secret_access_key={}&nonsense=1",
    "s3://bucket?secret_access_key=x&{}=1",
    "s3://bucket?secret_access_key=x&{}",
    "s3://bucket?{}",
    "s3://bucket?session_token={}&trust=verfy",
    "s3://bucket?endpoint=http://me:{}%40host",
    "s3://bucket?endpoint=http://me:{}@host",
    "s3://ID:{}/x@bucket",
    "s3://ID:{}#x@bucket",
    "s3://ID:{}?x@bucket",
    "s3://bucket/p#{}",
    "gs://me:{}@bucket",
    "gs://bucket?service_account_key={}",
    "az://container?account_key={}&sas_key={}",
    "az://account:{}@container",
    "abfs://{}@account.example.com",
    "https://me:{}@host/p",
    "https://me:12{}/x@host/p",
    "https://host/p?token={}",
    "https://host/p?proxy=http://me:{}%40proxy",
    "redis://:{}@host:6379/0",
    "redis://me:{}@host:port/0",
    "file://me:{}@/x",
    "me:{}@host",
    "s5://me:{}@host",
    "{}:@s3://b",
]


def texts_of(text: str) -> str:
    """Every text that comes of parsing `text`: of the address, or of the error with its traceback."""
    try:
        address = parse(text)
    except ValueError as error:
        shown = "".join(traceback.format_exception(error, chain=True))
        return f"{error} {error!r} " + "".join(line for line in shown.splitlines() if "parse(" not in line)
    return f"{address} {address!r} {address.describe()} {address.url} {address.host} {address.path}"


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("secret", [SECRET, "s3cr3t", "12345678", "s3cr3t=VALUE", "aGVsbG8gd29ybGQ+Zm9v"])
def test_no_text_shows_a_secret(spelling: str, secret: str) -> None:
    assert secret not in texts_of(spelling.replace("{}", secret))


@given(
    strategies.sampled_from(SPELLINGS),
    strategies.text("abc0129AZ+/=&?@:#%.,-_~! \\", min_size=1, max_size=12),
)
@example("https://me:{}@host/p", "12/34@x")
def test_no_text_shows_any_secret(spelling: str, inner: str) -> None:
    # The marks are letters that no message has, so that whichever piece is shown is seen.
    secret = f"QZX{inner}QZX"
    assert "QZX" not in texts_of(spelling.replace("{}", secret))


@settings(max_examples=400)
@example("/\x1b", "file")
@example("\x1f@0", "az")
@given(strategies.text(max_size=60), strategies.sampled_from(SCHEMES))
def test_any_text_is_an_address_or_one_sentence(text: str, scheme: str) -> None:
    for spelled in (text, f"{scheme}://{text}", f"{scheme}://b?{text}"):
        said = texts_of(spelled)
        assert said.isprintable(), said


def test_an_address_is_a_value() -> None:
    address = parse("s3://ID:secret@bucket/p")
    assert pickle.loads(pickle.dumps(address)) == address
    assert hash(address) == hash(parse("s3://ID:secret@bucket/p"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        address.trust = "store"  # type: ignore[misc]

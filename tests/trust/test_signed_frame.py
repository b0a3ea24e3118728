"""The signed frame: what an honest signer and reader do, whatever the entry, and the attacks on it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from signed_entries import FRAME, KEY, OTHER_KEY, SPACE, entry_of, fixed_key, refusal, trusting

from conftest import Program
from rewarm.errors import BadEntryError
from rewarm.trust import (
    Algorithm,
    Keyring,
    Posture,
    RefusedEntryError,
    SigningKey,
    TrustedKey,
    errors,
    signed,
    unsigned_entry,
)

ENTRY = entry_of()
ED, HMAC = (fixed_key(algorithm) for algorithm in Algorithm)
SIGNERS = {"ed25519": ED, "hmac": HMAC}
BLOBS = {name: signed(ENTRY, KEY, SPACE, signer) for name, signer in SIGNERS.items()}
BOTH = trusting(ED, HMAC)

signers = pytest.mark.parametrize("kind", list(SIGNERS))
postures = pytest.mark.parametrize("posture", list(Posture))


def signature_of(blob: bytes) -> bytes:
    *_, length = FRAME.unpack_from(blob)
    return blob[FRAME.size : FRAME.size + length]


def frame_with(
    entry: bytes = ENTRY, *, version: int = 1, algorithm: int, signer: str, signature: bytes, length: int | None = None
) -> bytes:
    """A frame that says anything at all."""
    size = len(signature) if length is None else length
    return FRAME.pack(b"RWSG", version, algorithm, bytes.fromhex(signer), size) + signature + entry


# -- the format ----------------------------------------------------------------------------------------------------


def message_as_documented(algorithm: int, signer: str, space: str, key: str, entry: bytes) -> bytes:
    """What is signed, by the words of frame.py alone."""
    fields = [
        b"rewarm signed entry v1",
        bytes([algorithm]),
        bytes.fromhex(signer),
        space.encode(),
        key.encode(),
        entry[-32:],
        struct.pack("<Q", len(entry)),
    ]
    return b"".join(struct.pack("<Q", len(field)) + field for field in fields)


def test_the_frame_is_as_documented() -> None:
    secret = b"s" * 32
    signer = SigningKey(Algorithm.HMAC, secret)
    message = message_as_documented(2, signer.id, "pr-7", KEY, ENTRY)
    mac = hmac.new(secret, message, hashlib.sha256).digest()
    assert signed(ENTRY, KEY, "pr-7", signer) == (
        b"RWSG\x01\x02" + bytes.fromhex(signer.id) + b"\x20\x00" + mac + ENTRY
    )
    assert signature_of(BLOBS["ed25519"]) == ED.sign(message_as_documented(1, ED.id, SPACE, KEY, ENTRY))


def test_the_bytes_of_version_1_stay() -> None:
    entry = b"RWRM" + bytes(60)
    with pytest.raises(BadEntryError):
        signed(entry, KEY, SPACE, HMAC)  # no sound entry, no signature
    digests = {kind: hashlib.sha256(blob[: FRAME.size + 32]).hexdigest()[:16] for kind, blob in BLOBS.items()}
    assert digests == {"ed25519": "b6e9cf478d7e0094", "hmac": "b2edcc46164adfa6"}


# -- properties ----------------------------------------------------------------------------------------------------

contents = st.binary(max_size=300)
keys = st.binary(min_size=32, max_size=32).map(bytes.hex)
spaces = st.text(max_size=20)
fixed_keys = st.builds(fixed_key, st.sampled_from(list(Algorithm)), st.integers(0, 50))


@given(contents, keys, spaces, fixed_keys, st.sampled_from(["raw", "zstd"]), st.sampled_from(list(Posture)))
def test_what_was_signed_comes_back(
    content: bytes, key: str, space: str, signer: SigningKey, codec: str, posture: Posture
) -> None:
    entry = entry_of(key, content, codec)
    blob = signed(entry, key, space, signer)
    assert unsigned_entry(blob, key, space, trusting(signer), posture) == entry
    assert unsigned_entry(blob, key, space, Keyring(signer), posture) == entry  # one's own key is trusted by oneself


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A signed blob with something in it changed, added or left out."""
    blob = BLOBS[draw(st.sampled_from(list(BLOBS)))]
    start = draw(st.integers(0, len(blob)))
    end = draw(st.integers(start, min(len(blob), start + 40)))
    new = draw(st.binary(max_size=40))
    return blob[:start] + new + blob[end:]


@settings(max_examples=500)
@given(changed(), st.sampled_from([Posture.REQUIRE, Posture.VERIFY]))
def test_any_change_is_refused(blob: bytes, posture: Posture) -> None:
    if blob in BLOBS.values():
        return
    reason = refusal(blob, BOTH, posture)
    # Only where the change took the frame away as a whole, and the entry is whole, does `verify` have an unsigned one.
    assert reason is not None or (posture is Posture.VERIFY and blob == ENTRY)


@given(changed())
def test_where_the_store_is_trusted_no_other_bytes_pass_for_the_entry(blob: bytes) -> None:
    with contextlib.suppress(RefusedEntryError):
        assert unsigned_entry(blob, KEY, SPACE, BOTH, Posture.STORE) == ENTRY


@given(st.binary(max_size=200), st.sampled_from(list(Posture)))
def test_garbage_is_refused(data: bytes, posture: Posture) -> None:
    assert refusal(data, BOTH, posture) is not None
    assert refusal(b"RWSG" + data, BOTH, posture) is not None
    assert refusal(b"RWSG\x01\x01" + data, BOTH, posture) is not None
    assert refusal(b"RWRM\x01" + data, BOTH, posture) is not None


# -- every bit -----------------------------------------------------------------------------------------------------


def bits(blob: bytes) -> Iterator[tuple[int, bytes]]:
    """The blob with one bit flipped: each of the frame, each of the entry's digest, and some of the rest."""
    entry = len(blob) - len(ENTRY)
    places = [
        *range(8 * entry),
        *range(8 * entry, 8 * (len(blob) - 32), 37),
        *range(8 * (len(blob) - 32), 8 * len(blob)),
    ]
    for place in places:
        other = bytearray(blob)
        other[place // 8] ^= 1 << place % 8
        yield place, bytes(other)


@signers
@pytest.mark.parametrize("posture", [Posture.REQUIRE, Posture.VERIFY])
def test_a_flipped_bit_is_refused(kind: str, posture: Posture) -> None:
    assert [place for place, blob in bits(BLOBS[kind]) if refusal(blob, BOTH, posture) is None] == []


@signers
def test_each_reason(kind: str) -> None:
    """Which reason a bit gives in which part of the frame."""
    blob = BLOBS[kind]
    reasons = {place // 8: refusal(other, BOTH) for place, other in bits(blob) if place % 8 == 3}
    assert {reasons[at] for at in range(4)} == {errors.UNSIGNED}
    assert reasons[4] == errors.NEWER
    assert reasons[5] == errors.MALFORMED
    assert {reasons[at] for at in range(6, 22)} == {errors.STRANGER}
    assert {reasons[at] for at in range(22, 24)} == {errors.MALFORMED}
    assert {reasons[at] for at in range(24, 24 + len(signature_of(blob)))} == {errors.WRONG}
    assert reasons[len(blob) - 1] == errors.WRONG


def test_a_damaged_payload_under_a_good_signature_is_found_by_the_digest() -> None:
    blob = bytearray(BLOBS["hmac"])
    blob[-40] ^= 1
    assert refusal(bytes(blob), BOTH) == errors.UNSOUND


# -- who signed what, for where ------------------------------------------------------------------------------------


@signers
@postures
def test_an_entry_is_of_no_use_in_another_place(kind: str, posture: Posture) -> None:
    """Replayed under another key or in another namespace; so is one whose header was made for the other key."""
    signer, blob = SIGNERS[kind], BLOBS[kind]
    assert refusal(blob, BOTH, posture, key=OTHER_KEY) == errors.WRONG
    for space in ("other", "", "main ", "Main", "main/", "mai", "ma\u0131n"):
        assert refusal(blob, BOTH, posture, space=space) == errors.WRONG
    with pytest.raises(BadEntryError, match="another key"):
        signed(ENTRY, OTHER_KEY, SPACE, signer)
    elsewhere = signed(entry_of(OTHER_KEY), OTHER_KEY, SPACE, signer)
    assert refusal(elsewhere, BOTH, posture) == errors.WRONG


@pytest.mark.parametrize("posture", list(Posture))
def test_a_sound_signature_does_not_carry_an_entry_of_another_key(posture: Posture) -> None:
    """What a signer that does not look would do: the reader looks itself."""
    message = message_as_documented(2, HMAC.id, SPACE, OTHER_KEY, ENTRY)
    blob = frame_with(algorithm=2, signer=HMAC.id, signature=HMAC.sign(message))
    assert refusal(blob, BOTH, posture, key=OTHER_KEY) == errors.UNSOUND


def test_fields_do_not_run_into_each_other() -> None:
    """Moving letters between namespace and key, or from the digest to them, changes what is signed."""
    one = message_as_documented(2, HMAC.id, "a" + KEY[0], KEY[1:], ENTRY)
    two = message_as_documented(2, HMAC.id, "a", KEY, ENTRY)
    assert one != two
    assert refusal(signed(ENTRY, KEY, SPACE + KEY, HMAC), BOTH) == errors.WRONG


@signers
@postures
def test_the_frame_of_one_entry_does_not_fit_another(kind: str, posture: Posture) -> None:
    other = entry_of(content=b"other code")
    blob = BLOBS[kind][: -len(ENTRY)] + other
    assert refusal(blob, BOTH, posture) == errors.WRONG
    # Not even one that ends with the digest that was signed: the length and the digest's own check are left.
    longer = BLOBS[kind][: -len(ENTRY)] + ENTRY[:-32] + b"more" + ENTRY[-32:]
    assert refusal(longer, BOTH, posture) == errors.WRONG
    same_length = BLOBS[kind][: -len(ENTRY)] + bytes(len(ENTRY) - 32) + ENTRY[-32:]
    assert refusal(same_length, BOTH, posture) == errors.UNSOUND


@signers
def test_another_signer_s_name_does_not_fit(kind: str) -> None:
    algorithm = SIGNERS[kind].algorithm
    other = fixed_key(algorithm, 1)
    blob = BLOBS[kind]
    renamed = blob[:6] + bytes.fromhex(other.id) + blob[22:]
    assert refusal(renamed, trusting(ED, HMAC, other)) == errors.WRONG
    stranger = signed(ENTRY, KEY, SPACE, other)
    assert refusal(stranger, BOTH) == errors.STRANGER
    posing = stranger[:6] + bytes.fromhex(SIGNERS[kind].id) + stranger[22:]
    assert refusal(posing, BOTH) == errors.WRONG


@signers
@postures
def test_a_frame_in_a_frame_is_no_entry(kind: str, posture: Posture) -> None:
    inner = BLOBS[kind]
    message = message_as_documented(SIGNERS[kind].algorithm, SIGNERS[kind].id, SPACE, KEY, inner)
    blob = frame_with(
        inner,
        algorithm=SIGNERS[kind].algorithm,
        signer=SIGNERS[kind].id,
        signature=SIGNERS[kind].sign(message),
    )
    assert refusal(blob, BOTH, posture) == errors.UNSOUND
    with pytest.raises(BadEntryError):
        signed(inner, KEY, SPACE, SIGNERS[kind])


# -- postures ------------------------------------------------------------------------------------------------------


@signers
def test_what_passes_under_which_posture(kind: str) -> None:
    stranger = signed(ENTRY, KEY, SPACE, fixed_key(SIGNERS[kind].algorithm, 9))
    revoking = trusting(ED, HMAC, revoked=(SIGNERS[kind].id,))
    wrong = BLOBS[kind].replace(signature_of(BLOBS[kind]), os.urandom(len(signature_of(BLOBS[kind]))))
    found = {
        posture: (
            refusal(ENTRY, BOTH, posture),
            refusal(BLOBS[kind], BOTH, posture),
            refusal(stranger, BOTH, posture),
            refusal(BLOBS[kind], revoking, posture),
            refusal(wrong, BOTH, posture),
        )
        for posture in Posture
    }
    assert found == {
        Posture.REQUIRE: (errors.UNSIGNED, None, errors.STRANGER, errors.REVOKED, errors.WRONG),
        Posture.VERIFY: (None, None, errors.STRANGER, errors.REVOKED, errors.WRONG),
        Posture.STORE: (None, None, None, errors.REVOKED, errors.WRONG),
    }


@postures
def test_an_entry_that_passes_is_sound(posture: Posture) -> None:
    """Whoever signed it, or nobody: digest and key are checked."""
    stranger = fixed_key(Algorithm.HMAC, 9)
    damaged = ENTRY[:-33] + bytes([ENTRY[-33] ^ 1]) + ENTRY[-32:]
    for blob in (damaged, ENTRY[:-1], ENTRY + b"\0", entry_of(OTHER_KEY), b"", b"RWRM"):
        assert refusal(blob, BOTH, posture) is not None
        signature = os.urandom(32)
        assert (
            refusal(frame_with(blob, algorithm=2, signer=stranger.id, signature=signature), BOTH, posture) is not None
        )


def test_a_posture_that_is_a_word_opens_nothing() -> None:
    """A caller that forgot to parse it must not end in the most open one."""
    for word in ("require", "verify", "store", None):
        with pytest.raises(AttributeError):
            unsigned_entry(ENTRY, KEY, SPACE, BOTH, word)  # type: ignore[arg-type]


@signers
def test_a_revoked_key_is_refused_whoever_trusts_it(kind: str) -> None:
    signer = SIGNERS[kind]
    for posture in Posture:
        for keyring in (
            trusting(signer, revoked=(signer.id,)),
            trusting(revoked=(signer.id,)),
            Keyring(signer, [signer.public], [signer.id]),
        ):
            assert refusal(BLOBS[kind], keyring, posture) == errors.REVOKED


def test_a_refusal_says_who_and_prints_nothing_strange() -> None:
    with pytest.raises(RefusedEntryError) as caught:
        unsigned_entry(BLOBS["hmac"], KEY, SPACE, trusting(ED), Posture.REQUIRE)
    assert caught.value.signer == HMAC.id
    assert HMAC.id in str(caught.value)
    nasty = entry_of("\x1b[31mred\n" + KEY)
    with pytest.raises(RefusedEntryError) as caught:
        unsigned_entry(nasty, KEY, SPACE, BOTH, Posture.STORE)
    assert caught.value.reason == errors.UNSOUND
    assert str(caught.value).isprintable()
    assert "red" in str(caught.value)


# -- downgrades ----------------------------------------------------------------------------------------------------


@signers
def test_taking_the_frame_off(kind: str) -> None:
    bare = BLOBS[kind][-len(ENTRY) :]
    assert refusal(bare, BOTH, Posture.REQUIRE) == errors.UNSIGNED
    # What `verify` does not promise.
    assert refusal(bare, BOTH, Posture.VERIFY) is None
    assert refusal(BLOBS[kind][4:], BOTH, Posture.VERIFY) == errors.UNSOUND


@signers
@postures
@pytest.mark.parametrize("version", [0, 2, 3, 127, 255])
def test_other_versions(kind: str, posture: Posture, version: int) -> None:
    blob = BLOBS[kind]
    assert refusal(blob[:4] + bytes([version]) + blob[5:], BOTH, posture) == errors.NEWER
    assert refusal(b"RWSG" + bytes([version]), BOTH, posture) == errors.NEWER


@postures
def test_the_algorithm_is_the_key_s(posture: Posture) -> None:
    """Each kind of frame with the other's number, and signatures of the other's length."""
    for kind, other in (("ed25519", 2), ("hmac", 1)):
        blob = BLOBS[kind]
        assert refusal(blob[:5] + bytes([other]) + blob[6:], BOTH, posture) == errors.MALFORMED
        for size in (32, 64):
            for number in (0, 1, 2, 3, 255):
                if (number, size) == (SIGNERS[kind].algorithm, len(signature_of(blob))):
                    continue
                forged = frame_with(algorithm=number, signer=SIGNERS[kind].id, signature=os.urandom(size))
                assert refusal(forged, BOTH, posture) in (errors.MALFORMED, errors.OTHER_ALGORITHM)


@postures
def test_a_public_key_is_no_secret(posture: Posture) -> None:
    """Algorithm confusion: everybody has the bytes of the public key, and so could make an HMAC with them."""
    public = ED.public
    raw = bytes(public._material)
    poser = SigningKey(Algorithm.HMAC, raw)
    message = message_as_documented(2, ED.id, SPACE, KEY, ENTRY)
    named_as_the_key = frame_with(algorithm=2, signer=ED.id, signature=hmac.digest(raw, message, "sha256"))
    assert refusal(named_as_the_key, trusting(ED), posture) == errors.OTHER_ALGORITHM
    assert poser.id != ED.id
    wanted = None if posture is Posture.STORE else errors.STRANGER
    assert refusal(signed(ENTRY, KEY, SPACE, poser), trusting(ED), posture) == wanted
    # A signature of the wrong kind does not verify either, whoever asks.
    assert not public.verify(message, hmac.digest(raw, message, "sha256"))


@signers
@postures
def test_a_signature_that_is_none(kind: str, posture: Posture) -> None:
    signer, signature = SIGNERS[kind], signature_of(BLOBS[kind])
    number, size = int(signer.algorithm), len(signature)
    for same_length in (bytes(size), b"\xff" * size, signature[::-1], signature[1:] + b"\0", signature[:-1] + b"\0"):
        if same_length != signature:
            blob = frame_with(algorithm=number, signer=signer.id, signature=same_length)
            assert refusal(blob, BOTH, posture) == errors.WRONG
    for other_length in (b"", signature[:-1], signature[:16], signature + b"\0", signature * 2):
        blob = frame_with(algorithm=number, signer=signer.id, signature=other_length)
        assert refusal(blob, BOTH, posture) == errors.MALFORMED
        lying = frame_with(algorithm=number, signer=signer.id, signature=other_length, length=size)
        assert refusal(lying, BOTH, posture) in (errors.WRONG, errors.MALFORMED)


@signers
@postures
def test_blobs_that_end_early_or_late(kind: str, posture: Posture) -> None:
    blob = BLOBS[kind]
    for end in (*range(FRAME.size + 70), len(blob) - 33, len(blob) - 1):
        assert refusal(blob[:end], BOTH, posture) is not None
    for more in (b"\0", b"\n", ENTRY, blob):
        assert refusal(blob + more, BOTH, posture) == errors.WRONG


# -- cost ----------------------------------------------------------------------------------------------------------


@postures
def test_ten_megabytes_of_garbage(posture: Posture) -> None:
    garbage = os.urandom(10 << 20)
    frames = [
        frame_with(garbage, algorithm=int(k.algorithm), signer=k.id, signature=bytes(64 // (int(k.algorithm))))
        for k in (ED, HMAC)
    ]
    begin = time.perf_counter()
    for blob in (garbage, b"RWRM\x01" + garbage, b"RWSG\x01\x01" + garbage, *frames):
        assert refusal(blob, BOTH, posture) is not None
    assert time.perf_counter() - begin < 2.0


BEFORE_UNPACKING = """
import json, os, sys
import rewarm.envelope.codec as codec, rewarm.envelope.format as form
from signed_entries import *
from rewarm.trust import Posture, signed, unsigned_entry, Algorithm

bomb = entry_of(content=bytes(1 << 28), codec="zstd")
assert len(bomb) < 100_000
ed, mac = fixed_key(Algorithm.ED25519), fixed_key(Algorithm.HMAC)
blobs = [signed(bomb, KEY, SPACE, signer) for signer in (ed, mac)]
def loud(*_): os._exit(77)
codec.CODECS = {name: (loud, loud) for name in codec.CODECS}
read_header = form._header

# Before the signature held, not even the header is read.
form._header = loud
for blob in blobs:
    spoiled = [blob[:30] + bytes([blob[30] ^ 1]) + blob[31:], blob[:6] + bytes(16) + blob[22:], blob[:-1] + b"x"]
    for one in (*spoiled, bomb):
        assert refusal(one, trusting(ed, mac)) is not None
    assert refusal(blob, trusting(ed, mac), space="other") is not None
    assert refusal(blob, trusting(ed, mac), key=OTHER_KEY) is not None
    assert refusal(blob, trusting(ed, mac, revoked=(ed.id, mac.id)), Posture.STORE) is not None

# Nor does the rest of the way unpack anything.
form._header = read_header
for blob in blobs:
    entry = unsigned_entry(blob, KEY, SPACE, trusting(ed, mac), Posture.REQUIRE)
    assert entry == bomb
assert refusal(bomb, trusting(ed), Posture.VERIFY) is None
print("nothing was unpacked", flush=True)
form.open_entry(bomb, KEY).section("executable")
print("the trap did not work")
"""


def test_nothing_is_unpacked(program: Program) -> None:
    run = program(BEFORE_UNPACKING, ok=False, PYTHONPATH=str(Path(__file__).parent))
    assert run.out == "nothing was unpacked\n", run.err
    assert run.code == 77  # the trap was live


def test_a_key_that_is_none_is_the_caller_s_mistake() -> None:
    for key in ("", KEY.upper(), KEY[:-1], KEY + "\n", "../" + KEY[3:]):
        with pytest.raises(ValueError, match="not a key"):
            unsigned_entry(BLOBS["hmac"], key, SPACE, BOTH, Posture.REQUIRE)


def test_trusted_keys_of_both_kinds_read_from_text() -> None:
    for kind, signer in SIGNERS.items():
        copy = TrustedKey.from_text(signer.public.to_text())
        assert unsigned_entry(BLOBS[kind], KEY, SPACE, trusting(copy), Posture.REQUIRE) == ENTRY

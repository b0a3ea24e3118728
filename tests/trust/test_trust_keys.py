"""Keys: their lines, their ids, their signatures, and signatures that no honest signer makes."""

from __future__ import annotations

import base64
import traceback

import curve
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from signed_entries import KEY, SPACE, entry_of, fixed_key, refusal, trusting

from conftest import Program
from rewarm.trust import Algorithm, RefusedEntryError, SigningKey, TrustedKey, UnusableKeyError, errors, signed
from rewarm.trust.ed25519 import is_weak

SECRET = base64.b64encode(bytes(range(32))).decode()
ED_SECRET, ED_PUBLIC, HMAC_SECRET = (f"rewarm-{kind}:{SECRET}" for kind in ("ed25519-secret", "ed25519", "hmac-secret"))


# -- lines and ids -------------------------------------------------------------------------------------------------


@given(st.sampled_from(list(Algorithm)), st.text(max_size=30))
def test_a_key_comes_back_from_its_line(algorithm: Algorithm, comment: str) -> None:
    try:
        key = SigningKey.generate(algorithm, comment)
    except UnusableKeyError:
        assert not comment.strip().isprintable()
        return
    text = key.to_text()
    assert len(text.splitlines()) == 1
    again = SigningKey.from_text(f"  {text}\n")
    public = TrustedKey.from_text(key.public.to_text())
    assert (again.to_text(), again.id, again.comment) == (text, key.id, comment.strip())
    assert (public.id, public.comment) == (key.id, comment.strip())
    assert public.verify(b"message", again.sign(b"message"))
    assert not public.verify(b"massage", again.sign(b"message"))


def test_ids_stay() -> None:
    """They are in every signed entry and in lists of revoked keys."""
    assert SigningKey.from_text(ED_SECRET).id == "4fbba6749da18ba5ebf5af1b0ab3ab90"
    assert SigningKey.from_text(HMAC_SECRET).id == "70238cd2c95be04a1e3bab5f8dc2d83a"
    ids = {SigningKey.from_text(ED_SECRET).id, TrustedKey.from_text(ED_PUBLIC).id, TrustedKey.from_text(HMAC_SECRET).id}
    assert len(ids) == 3  # the same 32 bytes as a seed, as a public key and as a shared secret are three keys


@pytest.mark.parametrize(
    "text",
    [
        "",
        SECRET,
        f"rewarm-hmac:{SECRET}",
        f"rewarm-ed25519-secret {SECRET}",
        f"rewarm-ed25519-secret:{SECRET[:-4]}",
        f"rewarm-ed25519-secret:{SECRET[:-1]}",
        f"rewarm-ed25519-secret:{SECRET[:20]} {SECRET[20:]}",
        f"rewarm-ed25519-secret:{SECRET[:-2]}9=",  # spare bits that are not zero
        f"rewarm-ed25519-secret:{SECRET}{SECRET}",
        f"rewarm-ed25519-secret:{SECRET.replace('A', '-')}",
        f"rewarm-hmac-secret:{base64.b64encode(bytes(31)).decode()}",
        f"rewarm-hmac-secret:{base64.b64encode(bytes(65)).decode()}",
        f"{ED_SECRET}\n{ED_SECRET}",
        f"{ED_SECRET} red \x1b[31m",
        f"{ED_SECRET} {'long' * 60}",
        f"REWARM-ED25519-SECRET:{SECRET}",
        "rewarm-ed25519-secret:" + "A" * 1_000_000,
        "rewarm-ed25519-secret:\ud800\u0661",
    ],
)
def test_what_is_no_key(text: str) -> None:
    for read in (SigningKey.from_text, TrustedKey.from_text):
        with pytest.raises(UnusableKeyError) as caught:
            read(text, "the setting x")
        assert str(caught.value).startswith("the setting x: expected ")
        assert len(str(caught.value)) < 400
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        assert SECRET[:12] not in shown
        assert SECRET[-12:] not in shown


def test_halves_are_not_mixed_up() -> None:
    with pytest.raises(UnusableKeyError, match=r"found the public half .* make a key with `rewarm keys new`"):
        SigningKey.from_text(ED_PUBLIC)
    with pytest.raises(UnusableKeyError, match=r"found the secret half .* `rewarm keys show` prints it"):
        TrustedKey.from_text(ED_SECRET)


def test_a_secret_is_in_no_repr() -> None:
    for text in (ED_SECRET, HMAC_SECRET):
        for key in (SigningKey.from_text(text), SigningKey.from_text(text).public):
            for shown in (repr(key), str(key), f"{key}", repr([key])):
                assert SECRET[:8] not in shown
                assert "x01" not in shown


# -- signatures ----------------------------------------------------------------------------------------------------


def test_known_signatures() -> None:
    """RFC 8032, section 7.1, test 1, and RFC 4231, section 4.3."""
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    key = SigningKey(Algorithm.ED25519, seed)
    public = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    assert key.public.to_text() == f"rewarm-ed25519:{base64.b64encode(public).decode()}"
    assert key.sign(b"").hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd"
        "25bf5f0595bbe24655141438e7a100b"
    )
    mac = SigningKey(Algorithm.HMAC, b"Jefe").sign(b"what do ya want for nothing?")
    assert mac.hex() == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"


MESSAGE = b"an entry"


def test_s_has_one_form() -> None:
    """S plus the order of the group is the same number to whoever does not look (RFC 8032, section 5.1.7)."""
    key = fixed_key(Algorithm.ED25519)
    signature = key.sign(MESSAGE)
    s = int.from_bytes(signature[32:], "little")
    assert key.public.verify(MESSAGE, signature)
    for more in range(1, 15):
        other = signature[:32] + (s + more * curve.L).to_bytes(32, "little")
        assert not key.public.verify(MESSAGE, other)
    assert not key.public.verify(MESSAGE, signature[:32] + (curve.L - s).to_bytes(32, "little"))


def forged(public: bytes, r: bytes, s: int = 0) -> bytes:
    return r + s.to_bytes(32, "little")


def encodings(point: curve.Point) -> set[bytes]:
    """The forms that a lenient reader takes for a point: y not reduced, and a sign where x is zero."""
    x, y = point
    ys = [y] + ([y + curve.P] if y + curve.P < 2**255 else [])
    signs = {x & 1} | ({0, 1} if x == 0 else set())
    return {(one | sign << 255).to_bytes(32, "little") for one in ys for sign in signs}


def test_keys_of_small_order_are_refused() -> None:
    """With such a key, one signature that needs no secret holds for many messages; the library takes it."""
    points = curve.small_order_points()
    assert {curve.times(8, point) for point in points} == {curve.IDENTITY}
    weak = {form for point in points for form in encodings(point)}
    assert len(weak) == 14
    identity = curve.encoded(curve.IDENTITY)
    Ed25519PublicKey.from_public_bytes(identity).verify(identity + bytes(32), MESSAGE)  # nobody signed this
    for form in weak:
        assert is_weak(form)
        with pytest.raises(UnusableKeyError, match="anybody can sign"):
            TrustedKey.from_text(f"rewarm-ed25519:{base64.b64encode(form).decode()}")


def test_other_forms_of_points_are_refused() -> None:
    for y in range(curve.P, 2**255):
        for sign in (0, 1):
            assert is_weak((y | sign << 255).to_bytes(32, "little"))
    assert not any(is_weak(fixed_key(Algorithm.ED25519, n).public._material) for n in range(20))
    assert not is_weak(curve.encoded(curve.base()))


def test_forging_with_points_of_small_order_in_the_signature() -> None:
    """R of small order, S zero or anybody's: they hold for no honest key."""
    key = fixed_key(Algorithm.ED25519)
    for point in curve.small_order_points():
        for r in encodings(point):
            for s in (0, 1, curve.L - 1, curve.L, 2**256 - 1):
                assert not key.public.verify(MESSAGE, r + s.to_bytes(32, "little"))


def test_a_signature_with_a_part_of_small_order_or_another_form_of_r() -> None:
    """What the signer himself could make to let two readers differ: R with a part of small order, or R in two forms."""
    seed = bytes(range(32))
    key = SigningKey(Algorithm.ED25519, seed)
    public = key.public._material
    secret = curve.scalar_of(seed)
    assert curve.encoded(curve.times(secret, curve.base())) == public
    for point in curve.small_order_points():
        r = curve.encoded(curve.add(curve.times(12345, curve.base()), point))
        s = (12345 + curve.challenge(r, public, MESSAGE) * secret) % curve.L
        assert key.public.verify(MESSAGE, r + s.to_bytes(32, "little")) == (point == curve.IDENTITY)
    for r in encodings(curve.IDENTITY):
        s = curve.challenge(r, public, MESSAGE) * secret % curve.L
        held = key.public.verify(MESSAGE, r + s.to_bytes(32, "little"))
        assert held == (r == curve.encoded(curve.IDENTITY))


def test_a_key_that_is_no_point_verifies_nothing() -> None:
    key = fixed_key(Algorithm.ED25519)
    blob = signed(entry_of(), KEY, SPACE, key)
    y = next(y for y in range(2, 100) if curve.x_of(y, 0) is None)
    nowhere = TrustedKey.from_text(f"rewarm-ed25519:{base64.b64encode(y.to_bytes(32, 'little')).decode()}")
    renamed = blob[:6] + bytes.fromhex(nowhere.id) + blob[22:]
    assert refusal(renamed, trusting(nowhere)) in (errors.WRONG, errors.UNCHECKABLE)


# -- without the library -------------------------------------------------------------------------------------------

WITHOUT = """
import sys
sys.modules["cryptography"] = None
from signed_entries import *
from rewarm.trust import Algorithm, Keyring, Posture, SigningKey, UnusableKeyError, signed, unsigned_entry

mac = fixed_key(Algorithm.HMAC)
entry = entry_of()
blob = signed(entry, KEY, SPACE, mac)
assert unsigned_entry(blob, KEY, SPACE, Keyring(mac), Posture.REQUIRE) == entry

# Trusted keys are read without it; a signature by one is refused, and the reason says why.
theirs = TrustedKey.from_text(sys.argv[1])
assert unsigned_entry(blob, KEY, SPACE, trusting(theirs, mac), Posture.REQUIRE) == entry
for posture in Posture:
    try:
        unsigned_entry(bytes.fromhex(sys.argv[2]), KEY, SPACE, trusting(theirs), posture)
    except RefusedEntryError as error:
        print(error)

own = SigningKey.generate()
for act in (lambda: own.id, lambda: own.sign(b""), lambda: signed(entry, KEY, SPACE, own)):
    try:
        act()
    except UnusableKeyError as error:
        print(error)
"""


def test_without_cryptography(program: Program) -> None:
    key = fixed_key(Algorithm.ED25519)
    blob = signed(entry_of(), KEY, SPACE, key)
    here = __file__.rpartition("/")[0]
    lines = program(WITHOUT, key.public.to_text(), blob.hex(), PYTHONPATH=here).out.splitlines()
    assert len(lines) == 6
    for line in lines:
        assert 'found none; pip install "rewarm[remote]", or use HMAC keys' in line
    assert all(line.startswith(f"{errors.UNCHECKABLE} (signer {key.id})") for line in lines[:3])
    assert RefusedEntryError(errors.WRONG).signer is None

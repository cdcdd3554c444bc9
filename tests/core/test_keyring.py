"""The key ring and the master key: what is encrypted opens only where it belongs, and bad keys are refused."""

import base64
import hashlib
import hmac
import os
import pickle
import stat
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.processes import FORKED
from tidings.core.secrets.keyring import DecryptionError, FernetSalt, KeyRing, UnknownKeyError
from tidings.core.secrets.master_key import (
    KeyFileError,
    KeyRingError,
    MalformedKeyError,
    WeakKeyError,
    load_or_create_key_file,
    new_master_key,
)
from tidings.core.secrets.secret import Secret

CANARY = "canary-5ecret; 饼干 \ud800"
KEY_1 = "pUR4tVd3cZ0u1yE8mJq6wN9xK2sLhGfB7oTiA5eXvQk="
KEY_2 = "3xvJc9QmW1tZr8YbN5kLh2Uf7GdSa4PoEi6TuCqRwXs="
PLACE = {"purpose": "cookie", "table": "tbl_cookie", "column": "cookie_encrypted", "row": "xhs-1"}


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=["umask 000", "umask 022", "umask 777"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def encrypt(ring: KeyRing, text: str = CANARY) -> tuple[bytes, str]:
    return ring.encrypt(text, **PLACE)


def test_what_is_encrypted_opens_in_its_place() -> None:
    """C22: encrypt and decrypt, with the id of the key beside the blob."""
    ring = KeyRing.parse(KEY_1)
    blob, key_id = encrypt(ring)
    assert key_id == ring.current_id == "k1"
    assert ring.decrypt(blob, key_id=key_id, **PLACE) == Secret(CANARY)
    assert b"canary" not in blob


def test_a_secret_can_be_encrypted_without_being_revealed_first() -> None:
    """C22: callers need not handle the clear text."""
    ring = KeyRing.parse(Secret(KEY_1))
    blob, key_id = ring.encrypt(Secret(CANARY), **PLACE)
    assert ring.decrypt(blob, key_id=key_id, **PLACE) == Secret(CANARY)


def test_one_text_is_never_encrypted_the_same_way_twice() -> None:
    """C22: the nonce is random."""
    ring = KeyRing.parse(KEY_1)
    assert len({encrypt(ring)[0] for _ in range(100)}) == 100


def test_the_blob_is_aes_256_gcm_under_a_derived_key_with_its_place_authenticated() -> None:
    """C22: written here from the standards (RFC 5869, GCM), so that the format cannot change unnoticed."""
    material = base64.urlsafe_b64decode(KEY_1)
    extracted = hmac.digest(bytes(32), material, hashlib.sha256)
    key = hmac.digest(extracted, b"tidings/1/aes-256-gcm/cookie\x01", hashlib.sha256)
    parts = [b"k1", b"tbl_cookie", b"cookie_encrypted", b"xhs-1"]
    place = b"\x01" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    nonce = bytes(range(12))
    blob = b"\x01" + nonce + AESGCM(key).encrypt(nonce, b"web_session=abc", place)
    assert KeyRing.parse(KEY_1).decrypt(blob, key_id="k1", **PLACE).reveal() == "web_session=abc"


@pytest.mark.parametrize("changed", PLACE)
def test_a_ciphertext_moved_elsewhere_does_not_open(changed: str) -> None:
    """C22: two swapped rows fail, and so does another column, table or purpose."""
    ring = KeyRing.parse(KEY_1)
    blob, key_id = encrypt(ring)
    with pytest.raises(DecryptionError) as caught:
        ring.decrypt(blob, key_id=key_id, **{**PLACE, changed: "xhs-2"})
    assert_clear_line(caught.value)


def test_swapped_rows_fail_both_ways() -> None:
    """C22: the attack itself: each of two rows holds the other's blob."""
    ring = KeyRing.parse(KEY_1)
    rows = {row: ring.encrypt(f"cookie of {row}", **{**PLACE, "row": row})[0] for row in ("xhs-1", "xhs-2")}
    for row, other in (("xhs-1", "xhs-2"), ("xhs-2", "xhs-1")):
        with pytest.raises(DecryptionError):
            ring.decrypt(rows[other], key_id="k1", **{**PLACE, "row": row})


def test_parts_of_the_place_cannot_be_shifted_into_each_other() -> None:
    """C22: the encoding of the place is unambiguous."""
    ring = KeyRing.parse(KEY_1)
    blob, key_id = ring.encrypt(CANARY, purpose="p", table="ab", column="c", row="d")
    with pytest.raises(DecryptionError):
        ring.decrypt(blob, key_id=key_id, purpose="p", table="a", column="bc", row="d")


def test_a_flipped_bit_at_any_position_fails() -> None:
    """C22: nothing of the blob can be altered, the version byte included."""
    ring = KeyRing.parse(KEY_1)
    blob, key_id = encrypt(ring, "a short cookie")
    for position in range(len(blob) * 8):
        altered = bytearray(blob)
        altered[position // 8] ^= 1 << position % 8
        with pytest.raises(DecryptionError):
            ring.decrypt(bytes(altered), key_id=key_id, **PLACE)


def test_a_truncated_blob_fails_at_any_length() -> None:
    """C22: an empty or cut blob is an error like any other."""
    ring = KeyRing.parse(KEY_1)
    blob, key_id = encrypt(ring, "a short cookie")
    for length in range(len(blob)):
        with pytest.raises(DecryptionError):
            ring.decrypt(blob[:length], key_id=key_id, **PLACE)


def test_unknown_key_id_is_named() -> None:
    """C22: the operator learns which key is missing."""
    ring = KeyRing.parse(f"k3:{KEY_1},k2:{KEY_2}")
    with pytest.raises(UnknownKeyError, match=r"'k9'.*\(k3, k2\)") as caught:
        ring.decrypt(b"anything", key_id="k9", **PLACE)
    assert_clear_line(caught.value)


def test_rotation_reads_the_old_key_and_writes_the_new() -> None:
    """C22: `encryption_key_id` for rotation: k1 → k2, then k1 can go."""
    blob, _ = encrypt(KeyRing.parse(KEY_1))
    both = KeyRing.parse(f"k2:{KEY_2}, k1:{KEY_1}")
    assert both.ids == ("k2", "k1")
    assert both.needs_rotation("k1")
    assert not both.needs_rotation("k2")

    renewed, key_id = both.encrypt(both.decrypt(blob, key_id="k1", **PLACE), **PLACE)
    assert key_id == "k2"
    only_new = KeyRing.parse(f"k2:{KEY_2}")
    assert only_new.decrypt(renewed, key_id="k2", **PLACE) == Secret(CANARY)
    with pytest.raises(UnknownKeyError):
        only_new.decrypt(blob, key_id="k1", **PLACE)


def test_a_blob_does_not_open_under_another_key_of_the_ring() -> None:
    """C22: the key id is authenticated: the same key under another name does not open it either."""
    blob, _ = encrypt(KeyRing.parse(f"k1:{KEY_1}"))
    with pytest.raises(DecryptionError):
        KeyRing.parse(f"k2:{KEY_1}").decrypt(blob, key_id="k2", **PLACE)


@pytest.mark.parametrize("as_text", [False, True], ids=["bytes", "text"])
def test_fernet_tokens_are_read_and_never_written(as_text: bool) -> None:
    """C22: Fernet tokens can be read; they are due for rotation, and what is written is not Fernet."""
    ring = KeyRing.parse(KEY_1)
    token = Fernet(KEY_1).encrypt("饼干".encode())
    blob = token.decode() if as_text else token
    secret = ring.decrypt(blob, key_id="k1", **PLACE)
    assert secret.reveal() == "饼干"
    assert ring.needs_rotation("k1", blob=blob)
    renewed, _ = ring.encrypt(secret, **PLACE)
    assert not ring.needs_rotation("k1", blob=renewed)


@pytest.mark.parametrize(
    "token",
    [
        Fernet(KEY_2).encrypt(b"x"),
        Fernet(KEY_1).encrypt(b"x")[:-9],
        Fernet(KEY_1).encrypt(b"canary \xff not text"),
        b"gAAAA",
        "gAAAA\ud800",
    ],
    ids=["other key", "truncated", "not text", "prefix", "surrogate"],
)
def test_a_bad_fernet_token_is_a_decryption_error(token: bytes | str) -> None:
    """C22: the same one error for the old format."""
    with pytest.raises(DecryptionError) as caught:
        KeyRing.parse(KEY_1).decrypt(token, key_id="k1", **PLACE)
    assert_clear_line(caught.value)


@pytest.mark.parametrize(
    "material",
    [
        hashlib.sha256(KEY_1.encode()).digest(),
        hashlib.pbkdf2_hmac("sha256", KEY_1.encode(), b"some salt", 1_000, dklen=32),
    ],
    ids=["sha256", "pbkdf2"],
)
def test_fernet_keys_derived_in_the_usual_ways_open(material: bytes) -> None:
    """C22: urlsafe base64 of SHA-256 of the key as written, and PBKDF2 with a given salt; each key by its id."""
    ring = KeyRing.parse(f"k2:{KEY_2},k1:{KEY_1}", fernet_salt=FernetSalt("some salt", 1_000))
    token = Fernet(base64.urlsafe_b64encode(material)).encrypt(b"x")
    assert ring.decrypt(token, key_id="k1", **PLACE).reveal() == "x"
    with pytest.raises(DecryptionError):
        ring.decrypt(token, key_id="k2", **PLACE)
    assert ring.needs_rotation("k2", blob=token)


def test_a_fernet_token_is_read_as_a_cookie_alone() -> None:
    """C22: Fernet knows no purpose; a token in the place of another secret does not open."""
    place = PLACE | {"purpose": "bing-key"}
    with pytest.raises(DecryptionError):
        KeyRing.parse(KEY_1).decrypt(Fernet(KEY_1).encrypt(b"x"), key_id="k1", **place)


def test_a_longer_key_encrypts_but_is_no_fernet_key() -> None:
    """C22: more than 32 bytes are fine for derivation; Fernet never took them."""
    ring = KeyRing.parse(os.urandom(48).hex())
    blob, key_id = encrypt(ring)
    assert ring.decrypt(blob, key_id=key_id, **PLACE) == Secret(CANARY)
    with pytest.raises(DecryptionError):
        ring.decrypt(Fernet(KEY_1).encrypt(b"x"), key_id="k1", **PLACE)


@pytest.mark.parametrize(
    "spell",
    [
        pytest.param(lambda data: base64.urlsafe_b64encode(data).decode(), id="urlsafe"),
        pytest.param(lambda data: base64.b64encode(data).decode(), id="standard"),
        pytest.param(lambda data: base64.b64encode(data).decode().rstrip("="), id="without padding"),
        pytest.param(lambda data: data.hex(), id="hex"),
        pytest.param(lambda data: data.hex().upper(), id="upper hex"),
        pytest.param(lambda data: f"  {data.hex()}\n", id="with space around"),
        pytest.param(lambda data: f"k1:{data.hex()}", id="with id"),
    ],
)
def test_every_usual_spelling_of_a_key_is_the_same_key(spell: object) -> None:
    """C22: COOKIE_MASTER_KEY in base64 or hexadecimal."""
    assert callable(spell)
    material = base64.urlsafe_b64decode(KEY_1)
    blob, key_id = encrypt(KeyRing.parse(KEY_1))
    assert KeyRing.parse(spell(material)).decrypt(blob, key_id=key_id, **PLACE) == Secret(CANARY)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        pytest.param(base64.b64encode(os.urandom(31)).decode(), "31 bytes", id="31 bytes"),
        pytest.param(os.urandom(24).hex(), "24 bytes", id="24 bytes of hex, 36 if read as base64"),
        pytest.param("", "0 bytes", id="nothing"),
        pytest.param("Z" * 43, "repeats", id="one letter many times"),
        pytest.param("00" * 32, "repeats", id="zeros"),
        pytest.param("deadbeef" * 8, "repeats", id="repeated word"),
        pytest.param(os.urandom(16).hex() * 2, "repeats", id="16 bytes twice"),
        pytest.param(bytes(range(32)).hex(), "sequence", id="bytes counting up"),
        pytest.param(base64.b64encode(bytes(range(40, 0, -1))).decode(), "sequence", id="bytes counting down"),
        pytest.param("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "sequence", id="alphabet"),
        pytest.param("ChangeMe" + KEY_1[8:], "well-known word", id="placeholder at the front"),
        pytest.param(KEY_1[:30] + "PASSWORD" + KEY_1[38:], "well-known word", id="placeholder inside"),
        pytest.param("short", "neither base64", id="no base64"),
        pytest.param(KEY_1[:41], "neither base64", id="cut key"),
        pytest.param(KEY_1[:20] + "!" + KEY_1[21:], "neither base64", id="mark inside"),
        pytest.param(KEY_1[:20] + "é" + KEY_1[21:], "neither base64", id="letter of another alphabet"),
        pytest.param(KEY_1[:20] + "\ud800" + KEY_1[21:], "neither base64", id="lone surrogate"),
        pytest.param("correct-horse-battery-staple-and-some-more-of-them", "reads like words", id="passphrase"),
        pytest.param("THE_QUICK_BROWN_FOX_JUMPS_OVER_THE_LAZY_DOG", "reads like words", id="capitals"),
    ],
)
def test_a_weak_master_key_is_refused_with_reason_and_remedy(key: str, reason: str) -> None:
    """C22: weak master key → refused; the message has no part of it and names the command that makes a good one."""
    for text in (key, f"k2:{KEY_2},k1:{key}"):
        with pytest.raises(WeakKeyError, match=reason) as caught:
            KeyRing.parse(text)
        assert "tidings keys new" in str(caught.value)
        assert_clear_line(caught.value, secrets=[key] if key else [])


def test_a_weak_key_of_a_ring_is_named_by_its_id() -> None:
    """C22: the operator learns which of several keys to replace."""
    with pytest.raises(WeakKeyError, match="master key k7 is weak"):
        KeyRing.parse(f"k8:{KEY_1},k7:{'00' * 32}")


@pytest.mark.parametrize(
    "text",
    [
        ",",
        f"k1:{KEY_1},",
        f"{KEY_1},{KEY_2}",
        f"k1:{KEY_1},{KEY_2}",
        f"k1:{KEY_1},k1:{KEY_2}",
        f":{KEY_1}",
        f"bad id:{KEY_1}",
    ],
)
def test_a_malformed_ring_is_refused_without_showing_it(text: str) -> None:
    """C22: an entry that is not understood may be the key itself, so it is not repeated."""
    with pytest.raises(MalformedKeyError) as caught:
        KeyRing.parse(text)
    assert_clear_line(caught.value, secrets=[KEY_1, KEY_2, KEY_1[:20]])


def test_new_master_keys_are_good_and_different() -> None:
    """C22: what `tidings keys new` prints is accepted, by Fernet's measure too."""
    keys = {new_master_key() for _ in range(500)}
    assert len(keys) == 500
    for key in keys:
        assert KeyRing.parse(key).current_id == "k1"
        Fernet(key)


def test_the_ring_shows_ids_only_and_cannot_be_pickled() -> None:
    """C7: no key in a traceback or a queue."""
    ring = KeyRing.parse(f"k2:{KEY_2},k1:{KEY_1}")
    assert repr(ring) == "KeyRing(k2, k1)"
    with pytest.raises(TypeError):
        pickle.dumps(ring)


def test_the_ring_hands_each_key_to_the_redactor() -> None:
    """C23: every secret the program knows: each key by itself, without the padding a log may drop."""
    ring = KeyRing.parse(f"k2:{KEY_2},k1:{KEY_1}")
    assert [secret.reveal() for secret in ring.secrets] == [KEY_2.rstrip("="), KEY_1.rstrip("=")]


def test_a_key_file_is_made_once_and_then_kept(tmp_path: Path) -> None:
    """C22: with no key set, one is made at first start and kept in the data directory."""
    path = tmp_path / "master.key"
    key, created = load_or_create_key_file(path)
    assert created
    assert KeyRing.parse(key)
    assert load_or_create_key_file(path) == (key, False)
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_file_is_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    """C22: 0600 whatever the umask."""
    path = tmp_path / "master.key"
    load_or_create_key_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        ("", 0o600, "is empty.*backup"),
        (" \n", 0o600, "is empty.*backup"),
        (KEY_1, 0o640, "open to others.*chmod 600"),
        (KEY_1, 0o604, "open to others.*chmod 600"),
        (KEY_1, 0o620, "open to others.*chmod 600"),
    ],
)
def test_a_doubtful_key_file_is_refused_with_what_to_do(tmp_path: Path, content: str, mode: int, problem: str) -> None:
    """C22: never replaced silently, since everything encrypted with it would be lost."""
    path = tmp_path / "master.key"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=problem) as caught:
        load_or_create_key_file(path)
    assert path.read_text() == content
    assert_clear_line(caught.value, secrets=[KEY_1])


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """C22: a pipe must not hold the start for ever; a missing directory says so."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "directory").mkdir(mode=0o700)
    for name, problem in (("pipe", "not a file"), ("directory", "not a file"), ("none/master.key", "cannot be made")):
        with pytest.raises(KeyFileError, match=problem):
            load_or_create_key_file(tmp_path / name)


def create_key_files(directory: Path, barrier: Barrier, rounds: int) -> list[tuple[str, bool]]:
    results = []
    for number in range(rounds):
        barrier.wait(timeout=30)
        results.append(load_or_create_key_file(directory / f"{number}.key"))
    return results


def test_processes_that_start_at_once_get_the_same_key(tmp_path: Path) -> None:
    """C22: one makes the key, the others read it, and none sees it half written."""
    workers, rounds = 4, 25
    with FORKED.Manager() as manager, FORKED.Pool(workers) as pool:
        barrier = manager.Barrier(workers)
        pending = [pool.apply_async(create_key_files, (tmp_path, barrier, rounds)) for _ in range(workers)]
        results = [each.get(timeout=60) for each in pending]
    for number in range(rounds):
        answers = [result[number] for result in results]
        assert len({key for key, _ in answers}) == 1
        assert sum(created for _, created in answers) == 1
    assert len(list(tmp_path.iterdir())) == rounds


def assert_clear_line(error: KeyRingError, *, secrets: list[str] | None = None) -> None:
    text = str(error)
    assert text
    assert text.isprintable()
    assert error.__cause__ is None
    for secret in [CANARY, "canary", *(secrets or [])]:
        assert secret not in text

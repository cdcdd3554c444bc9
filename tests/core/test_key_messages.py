"""The words of the key ring and the key file, what a weak key is to the byte, and the keys for keyed hashes."""

import base64
import hashlib
import hmac
import pickle
import random
import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from tidings.core.secrets.keyring import DecryptionError, KeyRing, UnknownKeyError
from tidings.core.secrets.master_key import (
    KeyFileError,
    MalformedKeyError,
    WeakKeyError,
    decode_master_key,
    load_or_create_key_file,
    new_master_key,
)

KEY_1 = "pUR4tVd3cZ0u1yE8mJq6wN9xK2sLhGfB7oTiA5eXvQk="
KEY_2 = "3xvJc9QmW1tZr8YbN5kLh2Uf7GdSa4PoEi6TuCqRwXs="
PLACE = {"purpose": "cookie", "table": "tbl_cookie", "column": "cookie_encrypted", "row": "xhs-1"}
WHERE = "tbl_cookie.cookie_encrypted of row 'xhs-1'"
ADVICE = "make a good one with: tidings keys new"


# The ring


def test_a_value_that_does_not_open_is_named_with_its_place_and_key() -> None:
    """C22: the line says what to look at, and why it may be."""
    ring = KeyRing.parse(f"k2:{KEY_2},k1:{KEY_1}")
    blob, _ = ring.encrypt("x", **PLACE)
    with pytest.raises(DecryptionError) as altered:
        ring.decrypt(blob[:-1] + b"\0", key_id="k2", **PLACE)
    reason = "altered, moved from another row, or made for another purpose"
    assert str(altered.value) == f"cannot decrypt {WHERE} with key 'k2': {reason}"
    with pytest.raises(UnknownKeyError) as unknown:
        ring.decrypt(blob, key_id="k3", **PLACE)
    assert str(unknown.value) == f"{WHERE} is encrypted with key 'k3', which is not in the key ring (k2, k1)"
    with pytest.raises(DecryptionError) as bytes_found:
        ring.decrypt(Fernet(KEY_1).encrypt(b"\xff"), key_id="k1", **PLACE)
    assert str(bytes_found.value) == f"cannot decrypt {WHERE}: what was encrypted is not text"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"k2:{KEY_2},{KEY_1}", "entry 2 of the key ring is not id:key, as in k2:KEY,k1:KEY"),
        (f"k2 {KEY_2},k1:{KEY_1}", "entry 1 of the key ring is not id:key, as in k2:KEY,k1:KEY"),
        (f"k1:{KEY_2},k1:{KEY_1}", "the key ring names one id twice; every key needs an id of its own"),
    ],
)
def test_a_ring_that_cannot_be_read_says_which_entry(text: str, problem: str) -> None:
    """C22: by its number, because without a colon the entry is the key itself."""
    with pytest.raises(MalformedKeyError) as caught:
        KeyRing.parse(text)
    assert str(caught.value) == problem


def test_the_first_colon_ends_the_id() -> None:
    """C22: what follows is the key, and is judged as such."""
    with pytest.raises(WeakKeyError, match=r"^master key k1 is weak: it is neither base64 nor hexadecimal;"):
        KeyRing.parse(f"k1:{KEY_1[:20]}:{KEY_1[20:]}")


def test_an_empty_value_and_a_row_of_any_name_open_again() -> None:
    """C22: the shortest blob there is, and a name that is no valid Unicode."""
    ring = KeyRing.parse(KEY_1)
    place = PLACE | {"row": "a \ud800 row"}
    blob, key_id = ring.encrypt("", **place)
    assert ring.decrypt(blob, key_id=key_id, **place).reveal() == ""


def test_a_key_for_hashes_comes_from_the_oldest_master_key() -> None:
    """C32: written here from RFC 5869. Pseudonyms stay the same when a new master key is put in front."""
    extracted = hmac.digest(bytes(32), base64.urlsafe_b64decode(KEY_1), hashlib.sha256)
    expected = hmac.digest(extracted, b"tidings/1/hmac-sha256/authors\x01", hashlib.sha256)
    third = base64.urlsafe_b64encode(random.Random(3).randbytes(32)).decode()
    for text in (KEY_1, f"k2:{KEY_2},k1:{KEY_1}", f"k3:{third},k2:{KEY_2},k1:{KEY_1}"):
        assert KeyRing.parse(text).derive_key("authors") == expected
    assert KeyRing.parse(KEY_1).derive_key("other") != expected


def test_a_ring_cannot_be_pickled() -> None:
    """C7: no key in a queue."""
    with pytest.raises(TypeError, match=r"^a KeyRing cannot be pickled$"):
        pickle.dumps(KeyRing.parse(KEY_1))


# What is weak


def make_material(*, values: int) -> bytes:
    """32 bytes in no order, of so many different values."""
    chosen = random.Random(7).sample(range(256), values)
    return bytes(random.Random(5).sample([*chosen, *chosen[: 32 - values]], 32))


def make_steps(*, ones: int) -> bytes:
    """32 different bytes; so many of their 31 steps are the same."""
    byte, made, dice = 0, [0], random.Random(11)
    for at in range(31):
        byte = (byte + (1 if at < ones else dice.choice([7, 18, 29, 41, 53]))) % 256
        made.append(byte)
    return bytes(made)


def test_what_is_weak_is_exact_to_the_byte() -> None:
    """C22: eighteen different bytes are enough, and so is a step that leads to no more than half of them."""
    assert decode_master_key(make_material(values=18).hex())
    assert decode_master_key(make_steps(ones=16).hex())
    repeated, steps = make_material(values=17), make_steps(ones=17)
    for material, reason in ((repeated, "it repeats a few characters"), (steps, "it is a sequence")):
        with pytest.raises(WeakKeyError) as caught:
            decode_master_key(material.hex())
        assert str(caught.value) == f"the master key is weak: {reason}; {ADVICE}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (KEY_1[:20] + "!!!!" + KEY_1[20:], "it is neither base64 nor hexadecimal"),
        ("ChangeMe" + KEY_1[8:], "it contains a well-known word"),
        (KEY_1.lower(), "it reads like words, not like random bytes"),
        (KEY_1.upper(), "it reads like words, not like random bytes"),
        (random.Random(1).randbytes(32).hex()[:-1], "it has 31 bytes, and 32 are needed"),
    ],
)
def test_a_weak_key_says_why(text: str, reason: str) -> None:
    """C22: and how to make a good one; never what it is."""
    with pytest.raises(WeakKeyError) as caught:
        decode_master_key(text, name="master key k7")
    assert str(caught.value) == f"master key k7 is weak: {reason}; {ADVICE}"


def test_both_alphabets_of_base64_are_the_same_key() -> None:
    """C22: `-` and `_`, or `+` and `/`."""
    safe = "_ppFVv-acq4uzZRnXppBzF6_p9crmFwWW0DDBHN4Pes="
    assert {"-", "_"} <= set(safe)
    assert decode_master_key(safe) == decode_master_key(safe.replace("-", "+").replace("_", "/"))
    assert decode_master_key(safe) == base64.urlsafe_b64decode(safe)


def test_only_the_padding_is_taken_off_a_key() -> None:
    """C22: a longer key has none, and may end in any letter."""
    material = random.Random(2).randbytes(47)
    endings = [material + bytes([last]) for last in range(256)]
    for each in endings:
        assert decode_master_key(base64.b64encode(each).decode()) == each


# The key file


def complain(path: Path, *, setting: str | None = None) -> str:
    with pytest.raises(KeyFileError) as caught:
        load_or_create_key_file(path, setting=setting) if setting else load_or_create_key_file(path)
    return str(caught.value)


def test_a_key_file_that_cannot_be_used_says_what_to_do(tmp_path: Path) -> None:
    """C22: each line names the file, the trouble and the way out."""
    path = tmp_path / "master.key"
    path.touch(mode=0o600)
    backup = "restore it from a backup; remove it only if nothing was encrypted yet"
    assert complain(path) == f"the key file {path} is empty; {backup}"
    path.write_text(KEY_1)
    path.chmod(0o640)
    mode = f"if nobody read it: chmod 600 {path}; else make a new key"
    assert complain(path) == f"the key file {path} is open to others; {mode}"
    assert complain(tmp_path) == f"the key file {tmp_path} is not a file; move it away"
    below = path / "below"
    assert complain(below) == f"the key file {below} cannot be read (Not a directory); give this user access to it"
    away = tmp_path / "away" / "master.key"
    begin = f"the key file {away} cannot be made (No such file or directory); make the directory writable, or set"
    assert complain(away) == f"{begin} COOKIE_MASTER_KEY"
    assert complain(away, setting="OTHER_KEY") == f"{begin} OTHER_KEY"


def test_a_key_file_of_any_bytes_is_judged_as_a_key(tmp_path: Path) -> None:
    """C22: a damaged file is a weak key, not a traceback with its content."""
    path = tmp_path / "master.key"
    path.touch(mode=0o600)
    path.write_bytes(b"\xff" * 44)
    text, made = load_or_create_key_file(path)
    assert not made
    with pytest.raises(WeakKeyError, match="neither base64"):
        KeyRing.parse(text)


def test_of_two_that_make_the_file_at_once_the_first_wins(tmp_path: Path) -> None:
    """C22: the second takes the key of the first, and leaves nothing behind."""
    path = tmp_path / "master.key"
    first = new_master_key()

    def make_late() -> str:
        assert load_or_create_key_file(path, make=lambda: first) == (first, True)
        return KEY_2

    assert load_or_create_key_file(path, make=make_late) == (first, False)
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

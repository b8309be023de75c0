"""The keyed stream: known answers from AES and HMAC alone, random access, and planes that never meet."""

from __future__ import annotations

import hashlib
import hmac
import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from dpframe.errors import ParameterError
from dpframe.noise.keystream import DOMAINS, Keystream, cipher_at

KEY = bytes(range(32))


def subkey(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA256 from its definition, over parts that each follow their length."""
    message = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    padded = key.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in padded) + message).digest()
    return hashlib.sha256(bytes(b ^ 0x5C for b in padded) + inner).digest()


def counter_blocks(key: bytes, first: int, count: int) -> bytes:
    """AES-256 of the block numbers themselves, by ECB: counter mode from its definition."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(b"".join((first + i).to_bytes(16, "big") for i in range(count)))


def test_known_answer_of_the_cipher() -> None:
    """NIST SP 800-38A, F.5.5 (CTR-AES256), its counter as a position."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    sealed = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")
    assert cipher_at(key, counter * 16).update(plain) == sealed
    assert cipher_at(key, counter * 16 + 5).update(plain[5:]) == sealed[5:]


def test_known_answer_of_the_subkey() -> None:
    message = b"".join(len(p).to_bytes(8, "little") + p for p in (b"noise", b"plan", b"age"))
    assert subkey(KEY, b"noise", b"plan", b"age") == hmac.digest(KEY, message, "sha256")


@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("first", [0, 1, 7, 2**40 + 3])
def test_words_are_aes_of_the_row(bits: int, first: int) -> None:
    stream = Keystream(KEY, b"digest").column("Größe", "order")
    key = subkey(KEY, b"order", b"digest", "Größe".encode(), (5).to_bytes(4, "little"), bytes([bits]))
    size, count = bits // 8, 50
    start = first * size
    raw = counter_blocks(key, start // 16, count * size // 16 + 2)[start % 16 :][: count * size]
    expected = [int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)]
    words = stream.words(5, first, count, bits)
    found = words.tolist() if bits < 128 else [low + (high << 64) for low, high in words.tolist()]
    assert found == expected


@pytest.mark.parametrize("bits", [32, 64, 128])
@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 2**50))
def test_any_part_equals_the_whole(bits: int, skip: int, count: int, first: int) -> None:
    stream = Keystream(KEY).column("a")
    whole = stream.words(0, first, 600, bits)
    np.testing.assert_array_equal(stream.words(0, first + skip, count, bits), whole[skip : skip + count])


def test_readers_go_on_where_they_stopped_and_past_a_mebibyte() -> None:
    stream = Keystream(KEY).column("a")
    rows = (1 << 18) + 77
    whole = stream.words(0, 3, rows)
    reader = stream.reader(0, 3)
    parts = []
    for count in (1, 2, 1000, rows - 1003):
        out = np.empty(count, dtype="<u8")
        reader.fill(out.view(np.uint8))
        parts.append(out)
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(stream.words(0, rows, 3), whole[-3:])
    assert len(stream.words(0, 0, 0)) == 0


@pytest.mark.slow
def test_planes_never_share_a_block() -> None:
    """Columns, word indices, domains, plans, keys and widths: 64-byte windows, at every block offset, all differ.

    A counter offset in one stream for each plane would overlap by a block: word 1 of row r would be word 0 of
    row r + 1.
    """
    rows = 4096
    planes = []
    for key, digest in [(KEY, b""), (KEY, b"other plan"), (KEY[::-1], b"")]:
        for column, domain in itertools.product(("a", "b", "ab"), DOMAINS):
            stream = Keystream(key, digest).column(column, domain)
            planes += [stream.words(word, 0, rows, bits) for word in (0, 1, 2) for bits in (32, 64, 128)]
    blocks = [plane.tobytes()[i : i + 16] for plane in planes for i in range(0, plane.nbytes, 16)]
    assert len(set(blocks)) == len(blocks)


def test_adjacent_rows_have_words_of_their_own() -> None:
    for bits in (32, 64, 128):
        words = Keystream(KEY).column("a").words(0, 0, 2000, bits)
        assert len(np.unique(words, axis=0)) == 2000


def test_parts_are_length_prefixed() -> None:
    """Moving a letter from the plan's digest to the column's name gives other words."""
    one = Keystream(KEY, b"ab").column("c").words(0, 0, 8)
    two = Keystream(KEY, b"a").column("bc").words(0, 0, 8)
    assert not (one == two).any()


def test_skip_renumbers_planes() -> None:
    stream = Keystream(KEY).column("a")
    np.testing.assert_array_equal(stream.skip(2).words(1, 0, 9), stream.words(3, 0, 9))
    np.testing.assert_array_equal(stream.skip(1).skip(1).words(0, 0, 9), stream.words(2, 0, 9))


def test_words_look_uniform() -> None:
    words = Keystream(KEY).column("a").words(0, 0, 1 << 17)
    ones = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 6 * 0.5 / (len(words) * 64) ** 0.5


def test_key_is_kept_to_itself() -> None:
    stream = Keystream(bytearray(KEY))
    assert "\\x01" not in repr(stream)
    assert "key" not in repr(stream.column("a"))
    assert stream == Keystream(KEY)
    assert hash(stream) == hash(Keystream(KEY))
    given_key = bytearray(KEY)
    stream = Keystream(given_key)
    given_key[0] = 99
    assert stream == Keystream(KEY)


@pytest.mark.parametrize("key", [b"", bytes(16), bytes(33), "0" * 32, None, 7])
def test_bad_keys(key: object) -> None:
    with pytest.raises(ParameterError, match="key must be 32 bytes"):
        Keystream(key)


def test_unknown_domain() -> None:
    with pytest.raises(ParameterError, match=r"domain must be one.*order, infer, sample"):
        Keystream(KEY).column("a", "noises")

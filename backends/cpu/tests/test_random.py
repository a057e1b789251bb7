"""The Philox stream word by word, and the fills made of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_harness import BFLOAT16, Array, call
from scipy import stats

MASK = (1 << 32) - 1


def philox_word(key: int, word: int) -> int:
    """One word of the stream, from the definition of Philox4x32-10."""
    block = word // 4
    c = [block & MASK, block >> 32 & MASK, 0, 0]
    k0, k1 = key & MASK, key >> 32 & MASK
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & MASK, (p0 >> 32) ^ c[3] ^ k1, p0 & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c[word % 4]


def words(key: int, first: int, count: int) -> Array:
    return np.array([philox_word(key, first + i) for i in range(count)], "u4")


def test_published_vector() -> None:
    out = np.empty(4, "u4")
    call("random_bits", [out], [], [0, 0])
    assert [hex(w) for w in out] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize("key", [0, 42, 0x1234_5678_9ABC_DEF0, (1 << 64) - 1])
@pytest.mark.parametrize("first", [0, 1, 2, 3, 61, 4 * ((1 << 32) - 3) + 1])
def test_bits_at_any_offset(key: int, first: int) -> None:
    for n in (1, 5, 64, 200):
        want = words(key, first, 2 * n)
        out = np.empty(n, "u4")
        call("random_bits", [out], [], [key, first])
        np.testing.assert_array_equal(out, want[:n])
        wide = np.empty(n, "u8")
        call("random_bits", [wide], [], [key, first])
        np.testing.assert_array_equal(wide, want.view("u8"))


def test_a_long_stream_is_its_parts() -> None:
    whole = np.empty(300_001, "u4")
    call("random_bits", [whole], [], [7, 3])
    for first, n in ((0, 100), (16_383, 77), (150_000, 1000), (299_900, 101)):
        part = np.empty(n, "u4")
        call("random_bits", [part], [], [7, 3 + first])
        np.testing.assert_array_equal(part, whole[first : first + n])


@pytest.mark.parametrize("n", [1, 100, 50_000])
def test_uniform_fill_is_exact(n: int) -> None:
    bits, wide = np.empty(n, "u4"), np.empty(n, "u8")
    call("random_bits", [bits], [], [9, 5])
    call("random_bits", [wide], [], [9, 5])
    wanted: list[tuple[Any, Array]] = [
        ("f4", (bits >> 8) * 2.0**-24),
        ("f8", (wide >> np.uint64(11)) * 2.0**-53),
        ("f2", (bits >> 21) * 2.0**-11),
        (BFLOAT16, (bits >> 24) * 2.0**-8),
    ]
    for dtype, want in wanted:
        out = np.empty(n, dtype)
        call("rand_fill", [], [out], [9, 5])
        np.testing.assert_array_equal(out.astype("f8"), want)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", BFLOAT16], ids=str)
def test_normal_fill(dtype: Any) -> None:
    n = 100_000
    out = np.empty(n, dtype)
    call("randn_fill", [], [out], [11, 6])
    if dtype == "f8":
        bits = np.empty(2 * n, "u8")
        call("random_bits", [bits], [], [11, 6])
        u = (bits >> np.uint64(11)) * 2.0**-53
    else:
        narrow = np.empty(2 * n, "u4")
        call("random_bits", [narrow], [], [11, 6])
        u = (narrow >> 8) * 2.0**-24
    want = np.sqrt(-2 * np.log(1 - u[::2])) * np.cos(2 * np.pi * u[1::2])
    tolerance = {"f4": 2e-6, "f8": 1e-14, "f2": 2e-3}.get(dtype, 1.6e-2) if isinstance(dtype, str) else 1.6e-2
    np.testing.assert_allclose(out.astype("f8"), want, atol=tolerance, rtol=tolerance)
    assert stats.kstest(out.astype("f8"), "norm").pvalue > 1e-4


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_normals_do_not_depend_on_where_a_fill_begins(dtype: str) -> None:
    """At every place within a block of the stream, with more and fewer than are made at once."""
    words = 4 if dtype == "f8" else 2
    for start in range(4):
        whole = np.empty(300, dtype)
        call("randn_fill", [], [whole], [3, start])
        for first in (0, 1, 2, 3, 17, 64, 65):
            for n in (1, 2, 15, 16, 63, 64, 65, 129, 200):
                part = np.empty(n, dtype)
                call("randn_fill", [], [part], [3, start + words * first])
                assert np.array_equal(part, whole[first : first + n]), (start, first, n)


def test_extreme_words_stay_finite() -> None:
    out = np.empty(4_000_000, "f4")
    call("randn_fill", [], [out], [0, 0])
    assert np.isfinite(out).all() and np.abs(out).max() < 5.78


def adverse_keys(kind: str, n: int) -> Array:
    """Keys that randperm never draws: the order must be right all the same, only later."""
    random = np.random.default_rng(n)
    drawn = random.integers(0, 1 << 64, n, dtype="u8")
    if kind == "equal":
        return np.full(n, (1 << 64) - 1, "u8")
    if kind == "few":
        return random.choice(drawn[: max(1, n // 50)], n).astype("u8")
    if kind == "low bits":  # told apart below what shares a word with the position
        return drawn & np.uint64(0xFF)
    if kind == "one group":  # over what its slots hold
        return np.where(random.random(n) < 0.5, drawn, (drawn >> np.uint64(34)) | np.uint64(1 << 62))
    return drawn


@pytest.mark.parametrize("kind", ["even", "equal", "few", "low bits", "one group"])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 33, 1000, 1024, 1025, 2048, 2049, 70_000, 1_100_000, 3_000_000])
def test_random_order_is_the_stable_order_of_halved_keys(kind: str, n: int) -> None:
    keys, order = adverse_keys(kind, n), np.empty(n, "i8")
    call("random_order", [order], [keys], [])
    np.testing.assert_array_equal(order, np.argsort(keys >> np.uint64(1), kind="stable"))


@pytest.mark.parametrize(
    "span", [1, 2, 3, 10, 1000, 65536, 2**31 - 1, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**63 + 5]
)
def test_integers_are_remainders_of_words(span: int) -> None:
    n, key, first, low = 5003, 42, 5, -7
    wide = span > 2**32
    bits = np.empty(n, "u8" if wide else "u4")
    call("random_bits", [bits], [], [key, first])
    want = (bits.astype("u8") % np.uint64(span)).astype("i8") + low
    out = np.empty(n, "i8")
    call("randint_fill", [], [out], [key, first, span - 2**64 if span >= 2**63 else span, low])
    np.testing.assert_array_equal(out, want)
    for dtype in ("i4", "u1"):
        if low + span <= np.iinfo(dtype).max:
            narrow = np.empty(n, dtype)
            call("randint_fill", [], [narrow], [key, first, span, 0])
            np.testing.assert_array_equal(narrow, want - low)

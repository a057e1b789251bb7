"""Random words in vectors, on serial devices: every element of a vector counts for itself."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tesserack_kernelgen.vectors import vector_helpers

if TYPE_CHECKING:
    from tesserack.backends import Launch

    from tesserack_kernelgen.call import Call
    from tesserack_kernelgen.kernel import Kernel

__all__ = ["LANES", "PHILOX", "draw_by_vectors", "has_draws", "interleaved"]

#: Elements of a vector, and words that four of them hold.
LANES = 16
WORDS = 4 * LANES
_GROUPS = 32  # groups of ``WORDS`` words of an item

#: ``philox(key, counter, word)`` makes the four words of one counter.
PHILOX = """
DEVICE void philox(u64 key, u64 counter, u32* word) {
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
  u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = 0, c3 = 0;
  for (i32 round = 0; round < 10; ++round) {
    const u32 high0 = MULHI32(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const u32 high1 = MULHI32(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0; c1 = low1; c2 = high0 ^ c3 ^ k1; c3 = low0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  word[0] = c0; word[1] = c1; word[2] = c2; word[3] = c3;
}"""

# Words of two vectors in turn are numbers of 64 bits.
_ALTERNATE = "\n".join(
    f"DEVICE ulong{LANES // 2} alternate_{name}(ulong{LANES // 2} a, ulong{LANES // 2} b) {{ return "
    f"(ulong{LANES // 2})({', '.join(f'a.s{j}, b.s{j}' for j in range(at, at + LANES // 4))}); }}"
    for name, at in (("low", 0), ("high", LANES // 4))
)
# Products of 64 bits, of every other element and of the rest: processors have no high halves of 32 bits alone.
_HALF = LANES // 2
_PHILOX = f"""
#define MULTIPLY(factor, c, high, low) \\
  const ulong{_HALF} low##_even = (as_ulong{_HALF}(c) & 0xffffffffUL) * factor; \\
  const ulong{_HALF} low##_odd = (as_ulong{_HALF}(c) >> 32) * factor; \\
  const U low = AS_U((low##_even & 0xffffffffUL) | (low##_odd << 32)); \\
  const U high = AS_U((low##_even >> 32) | (low##_odd & 0xffffffff00000000UL))
#define PAIRS(even, odd) (convert_ulong{_HALF}(even) | convert_ulong{_HALF}(odd) << 32)
{_ALTERNATE}
DEVICE void philox_lanes(u64 key, u64 counter, U* word) {{
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
  U c0 = (U)((u32)counter) + (U)({", ".join(str(j) for j in range(LANES))}), c2 = 0, c3 = 0;
  U c1 = (U)((u32)(counter >> 32)) - AS_U(c0 < (U)((u32)counter));
  for (i32 round = 0; round < 10; ++round) {{
    MULTIPLY(0xD2511F53UL, c0, high0, low0);
    MULTIPLY(0xCD9E8D57UL, c2, high1, low1);
    c0 = high1 ^ c1 ^ k0; c1 = low1; c2 = high0 ^ c3 ^ k1; c3 = low0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }}
  word[0] = c0; word[1] = c1; word[2] = c2; word[3] = c3;
}}"""


def has_draws(call: Call) -> bool:
    """Whether the device runs loops, and its dialect has functions of vectors."""
    return call.device.serial and call.card.dialect.vector_functions


def interleaved(*vectors: str) -> list[str]:
    """Expressions of vectors that hold the elements of two or four in turn: all first ones, then all second ones..."""
    if len(vectors) == 2:
        return [f"AS_U(PAIRS({vectors[0]}.{half}, {vectors[1]}.{half}))" for half in ("lo", "hi")]
    a, b, c, d = vectors
    found = []
    for half in ("lo", "hi"):
        pairs, others = f"PAIRS({a}.{half}, {b}.{half})", f"PAIRS({c}.{half}, {d}.{half})"
        found += [f"AS_U(alternate_{part}({pairs}, {others}))" for part in ("low", "high")]
    return found


def draw_by_vectors(
    kernel: Kernel,
    key: str,
    offset: str,
    count: int,
    *,
    each: int,
    whole: str,
    one: str,
    program: Any = None,
    dtypes: tuple[Iterable[str], Iterable[str]] = ((), ()),
) -> Launch:
    """A launch that makes ``count`` numbers, each of ``each`` words of the stream from ``offset`` on.

    Args:
        kernel: whose launch it is.
        key: expression of the stream's key.
        offset: expression of the first word's number.
        count: how many numbers there are.
        each: words of a number: 1, 2 or 4.
        whole: statements for the numbers of ``WORDS`` words, from number ``first`` on; the words are the elements of
            ``c0`` to ``c3`` in turn.
        one: statements for number ``n``, whose words are ``w[0]`` and the next.
        program: a program with the functions of vectors that ``whole`` calls.
        dtypes: those loaded and those stored as vectors.
    """
    call = kernel.call
    vector = call.card.dialect.vector("u32", LANES)
    types = f"typedef {vector} U;\n#define AS_U(x) as_{vector}(x)\ntypedef {vector} any_words ALIGNED(4);"
    functions = vector_helpers(call, program or SimpleNamespace(instructions=()), *dtypes, False, LANES)
    groups = count * each // WORDS + 2  # as many for every offset
    numbers, total = kernel.own_index(count), kernel.own_index(groups)
    body = f"""
  const u64 key = {key}, offset = {offset};
  const idx begin = (idx)GROUP(0) * {_GROUPS}, end = {total} - begin < {_GROUPS} ? {total} : begin + {_GROUPS};
  for (idx g = begin; g < end; ++g) {{
    const u64 block = offset / 4 + (u64)g * {LANES};
    const i64 place = (i64)g * {WORDS} - (i64)(offset % 4);
    if (place >= (i64){numbers} * {each}) break;
    U made[4];
    philox_lanes(key, block, made);
    const U c0 = made[0], c1 = made[1], c2 = made[2], c3 = made[3];
    if (place >= 0 && place % {each} == 0 && place + {WORDS} <= (i64){numbers} * {each}) {{
      const idx first = (idx)(place / {each});
      {whole}
    }} else {{
      u32 word[{WORDS + 4}];
      {_stored_words()}
      philox(key, block + {LANES}, word + {WORDS});
      for (i64 at = place < 0 ? 0 : (place + {each - 1}) / {each} * {each}; at < place + {WORDS}; at += {each}) {{
        const idx n = (idx)(at / {each});
        if (n >= {numbers}) break;
        const u32* w = word + (at - place);
        {one}
      }}
    }}
  }}"""
    return kernel.launch(body, (-(-groups // _GROUPS),), (1,), "\n".join((PHILOX, types, _PHILOX, functions)))


def _stored_words() -> str:
    parts = interleaved("c0", "c1", "c2", "c3")
    return " ".join(f"*(any_words*)(word + {k * LANES}) = {part};" for k, part in enumerate(parts))

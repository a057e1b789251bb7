"""Random programs over all dtypes, run with both libraries: views, writes through them, masks, out=, hooks.

The programs follow from the seed of the run; FULL=1 runs ten times as many. What PyTorch refuses is left out, and so
are lines that ``programs_differences.txt`` lists.
"""

from __future__ import annotations

import random
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
import torch
from tesserack.testing import seeds

INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
SHAPES = ((3, 4), (3, 4), (4,), (3, 1), (1, 4), (), (0, 4), (2, 3, 4))
NUMBERS = ("2", "-1", "0.5", "True", "3", "0")

# Arithmetic that is exact on small multiples of 1/4, or rounded once: nothing is left to tolerance. {a}, {b}, {c} are
# variables, {n} a number, {d} a dtype.
EXPRESSIONS = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} + {n}", "{n} - {a}", "{a} * {n}", "-{a}", "{a}.abs()", "abs({a})",
    "m.maximum({a}, {b})", "m.minimum({a}, {n} * {b})", "{a} == {b}", "{a} < {b}", "{a} >= {n}", "{a} != {b}", "~{a}",
    "{a} & {b}", "{a} | {b}", "{a} ^ {b}", "{a}.logical_not()", "m.logical_and({a}, {b})", "{a}.sum()", "{a}.sum(0)",
    "{a}.sum(-1, keepdim=True)", "{a}.sum(0, dtype=m.{d})", "{a}.cumsum(0)", "{a}.amax(-1)", "{a}.amin(0, True)",
    "{a}.any(0)", "{a}.all()", "{a}.any(-1, keepdim=True)", "{a}.count_nonzero(0)", "{a}.square()", "{a}.sign()",
    "m.where({a} > {n}, {a}, {b})", "m.where({b} != 0, {a}, {n})", "{a}.clamp(min={n})", "{a}.clamp(0, 2)",
    "m.cat(({a}, {b}))", "m.stack(({a}, {b}))", "m.stack(({a}, {a}), -1)", "{a}.to(m.{d})", "{a}.type_as({b})",
    "{a}.clone()", "{a}.detach()", "{a}.contiguous()", "{a}[{b} > {n}]", "{a}[{a} != 0]", "{a}.masked_select({b} > 0)",
    "{a}.masked_fill({b} > 0, {n})", "{a}[m.tensor([0, -1])]", "{a}[..., m.tensor([1, 0, 1])]", "{a}.flip(0)",
    "{a}.roll(1, 0)", "{a}.repeat(2, 1)", "{a}.tril()", "{a}.floor()", "{a}.relu()", "{a} // 2", "{a} % 3",
    "{a}.index_select(0, m.tensor([1, 1]))", "{a}.new_ones(2)", "m.zeros_like({a})", "m.ones_like({a}, dtype=m.{d})",
    "m.full_like({a}, {n})", "{a}.sort(dim=0, stable=True)[0]", "{a}.unique()", "{a}.nonzero().contiguous()",
    "{a}.argmax()", "{a}.prod(0)",
    "m.addcmul({a}, {b}, {c}, value=2)", "{a}.mean(0)", "{a}.float().mean()", "m.tensor({n}, dtype=m.{d}) + {a}",
    "{a}.diff(dim=0)", "m.outer({a}.flatten(), {b}.flatten())", "{a}.flatten().dot({b}.flatten())",
    "{a}.take(m.tensor([0]))", "{a}.gather(0, m.zeros_like({a}, dtype=m.int64))", "m.broadcast_tensors({a}, {b})[0]",
    "{a}.isnan()", "{a}.bool()",
)  # fmt: skip
VIEWS = (
    "{a}[0]", "{a}[1:]", "{a}[::2]", "{a}[..., 1:]", "{a}[:, 1]", "{a}[None]", "{a}[..., None]", "{a}.t()", "{a}.mT",
    "{a}.view(-1)", "{a}.reshape(-1)", "{a}.transpose(0, -1)", "{a}.unsqueeze(0)", "{a}.squeeze()", "{a}.expand(3, 4)",
    "{a}.expand_as({b})", "{a}.diagonal()", "{a}.narrow(0, 0, 1)", "{a}.unfold(0, 2, 2)",
    "{a}.as_strided((2, 2), (1, 2))", "{a}.permute(-1, 0)", "{a}.movedim(0, -1)", "{a}.chunk(2)[-1]", "{a}.split(2)[0]",
    "{a}.unbind()[0]", "{a}.view_as({b})", "{a}.select(-1, 1)", "{a}.flatten()", "{a}.detach()", "{a}.view(m.{d})",
    "{a}.tensor_split(2)[1]", "{a}.real",
)  # fmt: skip
WRITES = (
    "{a}.add_({b})", "{a}.sub_({n})", "{a}.mul_({b})", "{a}.copy_({b})", "{a}.fill_({n})", "{a}.zero_()", "{a}.neg_()",
    "{a}.abs_()", "{a} += {n}", "{a} *= {b}", "{a}[0] = {n}", "{a}[0] = {b}", "{a}[1:] = {n}", "{a}[..., 0] = {b}",
    "{a}[{b} > 0] = {n}", "{a}[{a} == {n}] = {b}", "{a}[{a} > 0] += {n}", "{a}.masked_fill_({b} > 0, {n})",
    "{a}.masked_fill_({a} != 0, {b})", "{a}[m.tensor([0, 2])] = {n}", "{a}[m.tensor([1])] = {b}",
    "{a}.index_fill_(0, m.tensor([0]), {n})", "{a}.index_add_(0, m.tensor([1]), {b})",
    "{a}.index_copy_(0, m.tensor([0]), {b})", "{a}.index_put_((m.tensor([0, 0]),), {b}, accumulate=True)",
    "{a}.scatter_(0, m.zeros_like({a}, dtype=m.int64)[:1], {n})", "{a}.clamp_(0, 2)", "{a}.relu_()", "{a}.square_()",
    "{a}.masked_scatter_({a} > 0, {b})", "{a}.t_()", "{a}.squeeze_()", "{a}.unsqueeze_(0)", "{a}.transpose_(0, -1)",
    "{a}.logical_not_()", "{a}.eq_({b})", "{a} &= {b}", "{a}.cumsum_(0)", "{a}.tril_()", "{a}.floor_()",
    "{a}.addcmul_({b}, {c})", "{a}.detach_()", "{a}.fill_diagonal_({n})", "{a}.swapaxes_(0, 1)", "{a}.data.mul_(2)",
    "{a}.detach().zero_()", "{a}.set_({a})", "{a}.sign_()", "{a}.clamp_min_({n})", "{a}[..., :2] = {a}[..., 1:3] * 1",
    "{a}[[0, 1]] = {b}[[1, 0]]", "{a}.put_(m.tensor([0]), m.ones_like({a})[:1].flatten()[:1])",
)  # fmt: skip
OUTS = (
    "m.add({a}, {b}, out={c})", "m.mul({a}, {n}, out={c})", "m.sub({a}, {b}, out={c})", "m.neg({a}, out={c})",
    "m.sum({a}, 0, out={c})", "m.cat(({a}, {b}), out={c})", "m.eq({a}, {b}, out={c})", "m.abs({a}, out={c}[0])",
    "m.maximum({a}, {b}, out={c})", "m.index_select({a}, 0, m.tensor([0]), out={c})", "m.cumsum({a}, 0, out={c})",
    "m.where({a} > 0, {a}, {b}, out={c})", "m.clamp({a}, 0, 2, out={c})", "m.add({a}, 1, out={c}[1:])",
    "m.amax({a}, 0, out={c})", "m.logical_or({a}, {b}, out={c})", "m.stack(({a}, {b}), out={c})",
    "m.tril({a}, out={c})",
)  # fmt: skip
HOOKS = (
    "{a}.register_hook(lambda g: seen.append(('{a}', g.sum())))", "{a}.register_hook(lambda g: g * 2)",
    "{a}.retain_grad()", "{a}.requires_grad_()", "{a}.register_hook(lambda g: seen.append(('zero', (g * 0).sum())))",
    "{a}.register_post_accumulate_grad_hook(lambda t: seen.append(('post', t.grad.sum())))",
    # Each takes itself away: which of two tensors' hooks runs first is left open.
    "handles.append({a}.register_hook(lambda g, k=len(handles): (seen.append(('', g.sum())), handles[k].remove())[0]))",
    "handles and handles[-1].remove()",
    "with m.no_grad(): {a}.mul_(2)", "with m.no_grad(): {a}[0] = {n}",
)  # fmt: skip
TABLES = {"expression": EXPRESSIONS, "view": VIEWS, "write": WRITES, "out": OUTS, "hook": HOOKS}
IN_A_PART = 500
PARTS = 40 if seeds.full() else 4
KINDS = ("expression", "expression", "view", "view", "write", "write", "write", "out", "hook")

KNOWN = [
    re.compile(line.partition(": ")[0])
    for line in (Path(__file__).parent / "programs_differences.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


class Program:
    """Variables v0 to v4 and lines of text; those that bind begin with the new variable's name."""

    def __init__(self, chance: random.Random) -> None:
        self.variables = [self._variable(chance) for _ in range(5)]
        self.lines: list[str] = []
        known = 5
        for _ in range(chance.randint(3, 9)):
            kind = chance.choice(KINDS)
            late = [f"v{chance.randrange(max(0, known - 4), known)}" for _ in range(2)]
            line = chance.choice(TABLES[kind]).format(
                a=late[0],
                b=f"v{chance.randrange(known)}",
                c=late[1],
                n=chance.choice(NUMBERS),
                d=chance.choice(DTYPES),
            )
            if kind in ("expression", "view"):
                line, known = f"v{known} = {line}", known + 1
            self.lines.append(line)

    @staticmethod
    def _variable(chance: random.Random) -> tuple[str, tuple[int, ...], list[float], bool]:
        dtype, shape = chance.choice(DTYPES + FLOATS), chance.choice(SHAPES)
        count = 1
        for n in shape:
            count *= n
        values = [chance.randint(0 if dtype in ("bool", "uint8") else -3, 4) for _ in range(count)]
        scale = 0.25 if dtype in FLOATS else 1
        return dtype, shape, [v * scale for v in values], dtype in FLOATS and chance.random() < 0.6

    def scope(self, m: Any) -> dict[str, Any]:
        scope: dict[str, Any] = {"m": m, "seen": [], "handles": []}
        for k, (dtype, shape, values, grad) in enumerate(self.variables):
            made = m.tensor(values, dtype=getattr(m, dtype)).reshape(shape)
            if grad:
                scope[f"leaf{k}"] = made.requires_grad_()
            # Half of what needs gradients is a leaf itself.
            scope[f"v{k}"] = made * 1 if grad and k % 2 else made
        return scope


def tensors(scope: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in scope.items() if re.fullmatch(r"(v|leaf)\d+", name)}


def expression_of(line: str) -> str:
    """The line without the variable it binds."""
    return re.sub(r"^v\d+ = ", "", line)


def undefined(line: str, scope: dict[str, Any]) -> bool:
    """Whether what the line does is left open: a conversion out of range, or reading what is written meanwhile."""
    named = [scope[name] for name in re.findall(r"\bv\d+\b", expression_of(line)) if name in scope]
    floats = [t.detach() for t in named if t.dtype.is_floating_point and t.numel()]
    wild = any(not bool(((t.abs() < 60) & (t == t)).all()) for t in floats)  # NaN is in no range
    negative = any(bool((t < 0).any()) for t in floats)
    whole = any(not t.dtype.is_floating_point for t in named) or re.search(r"\bm\.u?int|m\.bool", line) is not None
    unsigned = any(t.dtype is torch.uint8 for t in named) or "uint8" in line
    if whole and (wild or (unsigned and negative)):
        return True
    # PyTorch's gradient multiplies the integers by value in their own dtype, where bits seen as integers overflow.
    integers = [t for t in named if t.dtype in (torch.int32, torch.int64) and t.numel()]
    if "addcmul" in line and any(int(t.abs().max()) >= 2**29 for t in integers):
        return True
    # A number, or a 0-d tensor, is converted to uint8 before it is looked at.
    below = "-" in expression_of(line) or any(t.ndim == 0 and t.numel() and float(t.detach()) < 0 for t in named)
    if below and any(t.dtype is torch.uint8 for t in named):
        return True
    if re.match(r"v\d+ = ", line):
        return False
    spots = [t.untyped_storage().data_ptr() for t in named if t.numel()]
    return len(set(spots)) < len(spots) and len(named) > 1


def step(line: str, scope: dict[str, Any]) -> Exception | None:
    try:
        exec(line, scope)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, AttributeError) as error:
        return error
    return None


def name_of(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


ULP = 2.0**-7  # of bfloat16: products of many are rounded once here, by the factor in PyTorch


def differs(ours: Any, theirs: Any, tolerance: float = 4e-3) -> str:
    """In what two tensors differ."""
    if name_of(ours.dtype) == "bfloat16":
        tolerance = max(tolerance, ULP)
    if tuple(ours.shape) != tuple(theirs.shape):
        return f"shape {tuple(ours.shape)}, PyTorch's {tuple(theirs.shape)}"
    if name_of(ours.dtype) != name_of(theirs.dtype):
        return f"dtype {ours.dtype}, PyTorch's {theirs.dtype}"
    if not nearly(ours.detach().tolist(), theirs.detach().tolist(), tolerance):
        return f"{ours.tolist()}, PyTorch's {theirs.tolist()}"
    try:
        flags = [(t.requires_grad, t.is_leaf) for t in (ours, theirs)]
    except RuntimeError:  # one of several views, or one made in no_grad mode, written through another
        return ""
    return "" if flags[0] == flags[1] else f"requires_grad and is_leaf {flags[0]}, PyTorch's {flags[1]}"


def nearly(a: Any, b: Any, tolerance: float = 4e-3) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(nearly(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return bool(a == b or (a != a and b != b) or abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)))


# Gradients are added up in either order, in bfloat16 too, which holds eight bits.
OF_GRADIENTS = 2e-2


def backward(m: Any, scope: dict[str, Any]) -> Exception | None:
    """Of a weighted sum of all variables that need gradients; the weights are small integers."""
    total = m.zeros((), dtype=m.float64)
    try:
        for _, value in sorted(tensors(scope).items()):
            if value.requires_grad and value.numel():
                weights = (m.arange(value.numel(), dtype=m.float64) % 3 + 1).reshape(value.shape)
                total = total + (value.double() * weights).sum()
        if total.requires_grad:
            total.backward()
    except RuntimeError as error:
        return error
    return None


def is_sound(scope: dict[str, Any]) -> bool:
    """Whether PyTorch's tensors can be asked: not so views made in no_grad mode after another was written, nor integers
    into which something that needs a gradient was written, which then need one too."""
    try:
        return not any(t.requires_grad and not t.dtype.is_floating_point for t in tensors(scope).values())
    except RuntimeError:
        return False


def layouts(scope: dict[str, Any]) -> dict[str, tuple[Any, int, int]]:
    """The shape of each tensor, its number of elements and its memory's bytes."""
    return {name: (t.shape, t.numel(), t.untyped_storage().nbytes()) for name, t in tensors(scope).items()}


def lies_otherwise(before: dict[str, tuple[Any, int, int]], scope: dict[str, Any]) -> bool:
    """Whether out= gave a tensor sizes for which it lies elsewhere in memory than here, where views see it: grown
    memory, a view of nothing that grew, or a layout that follows an operand's."""
    for name, (shape, count, size) in before.items():
        t = scope[name]
        if t.untyped_storage().nbytes() != size or (t.shape != shape and (count == 0 or not t.is_contiguous())):
            return True
    return False


def compare(program: Program, lines: list[str]) -> str:
    """What is wrong with our run of these lines; nothing if all is well."""
    ours, theirs = program.scope(ts), program.scope(torch)
    for line in lines:
        needed = re.findall(r"\bv\d+\b", expression_of(line))
        if any(name not in theirs for name in needed) or any(k.search(line) for k in KNOWN) or undefined(line, theirs):
            continue
        before = layouts(theirs)
        refused = step(line, theirs)
        if "out=" in line and lies_otherwise(before, theirs):
            return ""
        if refused is not None:
            if not re.match(r"v\d+ = ", line):  # a write may have begun
                return ""
            continue
        if not is_sound(theirs):
            return ""
        if (error := step(line, ours)) is not None:
            told = f"{line}: {error!r}"
            return "" if any(known.search(told) for known in KNOWN) else told
        for name, value in tensors(theirs).items():
            if told := differs(ours[name], value):
                return f"{line}: {name} has {told}"
    # PyTorch's gradients of products and extremes compare the saved result with the operand, which tells where .data
    # changed that meanwhile.
    compared = r"\.(prod|amax|amin)\("
    if any(".data." in line for line in lines) and any(re.search(compared, line) for line in lines):
        return ""
    return gradients_differ(ours, theirs)


def gradients_differ(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    found, expected = backward(ts, ours), backward(torch, theirs)
    if expected is not None:  # PyTorch saves more than it needs, and notices more writes
        return ""
    if found is not None:
        return f"backward: {found!r}"
    for name, value in tensors(theirs).items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mine, other = ours[name].grad, value.grad
        except RuntimeError:  # of a view made in no_grad mode, written since: it cannot be asked
            continue
        if other is not None and other.shape != value.shape:
            continue  # retained before the tensor got other sizes in place
        if (mine is None) != (other is None):
            return f"{name}.grad is {mine}, PyTorch's {other}"
        if mine is not None and (told := differs(mine, other, OF_GRADIENTS)):
            return f"{name}.grad has {told}"
    mine, other = ([(word, float(t)) for word, t in scope["seen"]] for scope in (ours, theirs))
    # Where two orders of running are right, hooks fire in either.
    same = len(mine) == len(other) and all(
        a[0] == b[0] and nearly(a[1], b[1], OF_GRADIENTS) for a, b in zip(sorted(mine), sorted(other), strict=True)
    )
    return "" if same else f"hooks saw {mine}, PyTorch's {other}"


def shortest(program: Program) -> tuple[list[str], str]:
    """Lines that still go wrong, none of which can be left out."""
    lines, told = program.lines, compare(program, program.lines)
    for at in reversed(range(len(lines))):
        rest = lines[:at] + lines[at + 1 :]
        if wrong := compare(program, rest):
            lines, told = rest, wrong
    return lines, told


def report(program: Program, told: str) -> str:
    lines, why = shortest(program)
    used = set(re.findall(r"v(\d+)", "\n".join([*lines, told])))
    made = [f"v{k}: {v}" for k, v in enumerate(program.variables) if str(k) in used]
    return "\n".join([why, "", *made, *lines])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(part: int) -> None:
    """Same values, dtypes, gradients and hooks as PyTorch."""
    for number in range(part * IN_A_PART, (part + 1) * IN_A_PART):
        program = Program(seeds.generator(f"program {number}"))
        if told := compare(program, program.lines):
            pytest.fail(f"program {number} of seed {seeds.seed()}\n{report(program, told)}", pytrace=False)

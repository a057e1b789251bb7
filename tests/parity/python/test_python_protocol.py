"""What Python, NumPy and ``torch.testing`` see of tensors, sizes and dtypes, each as one program for both libraries."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict, namedtuple
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest


def arrays_as_operands(m: Any) -> Any:
    x, whole = m.tensor([1.0, 2.0]), m.tensor([1, 2], dtype=m.int32)
    arrays = [np.array([1, 2]), np.array([1, 2], np.int16), np.array([0.5, 2.0]), np.array(2.0), np.array([1j, 2])]
    read = [x + a for a in arrays] + [x.half() * a for a in arrays] + [whole - a for a in arrays]
    read += [x / np.array([1, 2], np.int8), whole / np.array([2, 3]), whole // np.array(2), x @ np.array([1.0, 2.0])]
    return [*read, m.tensor([True]) + np.ones(1, np.float32), x == np.array([1.0, 3.0])]


def complex_numbers_without_an_imaginary_part(m: Any) -> Any:
    x = m.tensor(3 + 0j)
    return [float(x), int(x), _error(lambda: float(x + 1j)), _error(lambda: int(x + 1j))]


def sizes_and_limits(m: Any) -> Any:
    size = m.Size([2])
    sums = [(1,) + size, size + (1,), () + size, _error(lambda: [1] + size), _error(lambda: size + 1)]
    kinds = [type(s) is m.Size for s in sums]
    infos = [repr(m.iinfo(d)) for d in (m.int8, m.int32, m.int64, m.uint8)]
    infos += [repr(m.finfo(float)), repr(m.finfo(complex)), repr(m.iinfo(int)), _error(lambda: m.iinfo(float))]
    same = [m.finfo(m.float16) == m.finfo(m.float16), m.iinfo(m.int8) == m.iinfo(m.int16)]
    names = [m.typename(x).rpartition(".")[2] for x in (m.ones(1), m.ones(1).int(), m.nn.Linear(1, 1), m.int8, 3)]
    return [names, [tuple(s) for s in sums[:3]], kinds, infos, same, str(m.bfloat16.to_complex()).rpartition(".")[2]]


def assert_close_says_what_differs(m: Any) -> Any:
    one, zero, eye = m.ones(2), m.zeros(2), m.eye(2)
    pairs = [(m.tensor(1.0), m.tensor(2.0)), (1, 2), (1.0, 2), (1.0, float("inf")), (1.0, 0.0), (1j, 2j), (True, False)]
    pairs += [([1.0, 1.0], [1.0, 2.0]), ({"a": 1}, {"b": 2}), ({"a": [one, 1]}, {"a": [one, 2]}), ([1], [1, 2])]
    pairs += [(None, None), (None, 1), ("a", "a"), (one, m.ones(3)), (one, one.double()), (one, zero)]
    pairs += [(one.to_sparse(), other) for other in (one, one.to_sparse(), zero.to_sparse(), (one * 2).to_sparse())]
    pairs += [(eye.to_sparse_csr(), other.to_sparse_csr()) for other in (eye, eye * 2, m.ones(2, 2))]
    pairs += [(eye.to_sparse_csc(), eye.flip(0).to_sparse_csc()), (eye.to_sparse(), eye.flip(0).to_sparse())]
    close = m.testing.assert_close
    told = [_error(lambda a=a, b=b: close(a, b), message=True) for a, b in pairs]
    return [*told, _error(lambda: close(one.to_sparse(), one, check_layout=False)), close(1.0, 1, check_dtype=False)]


def derivatives_that_are_strict(m: Any) -> Any:
    f = m.autograd.functional
    x, eye, cube = m.tensor([1.0, 2.0]), m.eye(2), lambda a: (a**3).sum()
    functions = [lambda a: a.exp(), lambda a: a * 2, lambda a: m.ones(2), lambda a: a.sum(), cube]
    kept: list[Any] = []
    made = [
        partial(f.jacobian, inputs=x),
        partial(f.hessian, inputs=x),
        partial(f.jacobian, inputs=x, create_graph=True),
    ]
    made += [partial(take, inputs=x, v=v) for take in (f.jvp, f.vhp, f.hvp) for v in (x, None)]
    made += [partial(f.vjp, inputs=x, v=v) for v in (x, m.tensor(1.0), None, eye)]
    for function, strict, call in product(functions, (False, True), made):
        kept.append(_detached(_error(partial(call, function, strict=strict))))
    kept += [_error(partial(f.jacobian, cube, wrong)) for wrong in ([x], 3)] + [_error(lambda: f.vjp(lambda a: 3, x))]
    return [*kept, _error(lambda: f.jacobian(cube, x, strict=True, vectorize=True))]


def collated(m: Any) -> Any:
    collate = m.utils.data.default_collate
    kept = collate([defaultdict(int, a=1)])
    parts = [collate([((1, "a"), {"x": m.ones(1)})] * 2), collate(["a", "b"]), m.utils.data.default_convert((1, 2))]
    rows = [*m.utils.data.DataLoader(m.utils.data.TensorDataset(m.arange(2)), batch_size=None)]
    kinds = [type(kept).__name__, type(parts[0][0][1]).__name__, type(parts[2]).__name__, type(rows[0]).__name__]
    return [kept["a"], *parts, rows, kinds, _error(lambda: m.utils.data.WeightedRandomSampler([[1, 1]], 2))]


def paths_of_trees(m: Any) -> Any:
    tree = m.utils._pytree
    nested = {"a": [1, (2, {"b": 3})], "c": namedtuple("Pair", "x y")(4, None)}
    paths = [(tree.keystr(path), leaf) for path, leaf in tree.tree_flatten_with_path(nested)[0]]
    mapped = tree.tree_map_with_path(lambda path, x, y: (len(path), x + y), {"a": [1, 2]}, {"a": [3, 4]})
    return [paths, mapped, repr(tree.SequenceKey(0))]


def specs_of_trees_as_text(m: Any) -> Any:
    tree = m.utils._pytree
    values = {"a": [1, (2, 3)], "b": None, "c": defaultdict(list, x=[1])}
    spec = tree.tree_structure(values)
    text = tree.treespec_dumps(spec)
    bad = [_error(lambda t=t: tree.treespec_loads(t)) for t in ("[7, {}]", text.replace("builtins.list", "os.list"))]
    back = tree.treespec_loads(text) == spec
    return [text, back, tree.treespec_pprint(tree.tree_structure([1, (2, {"k": 3})])), bad]


def dtypes_have_short_names(m: Any) -> Any:
    names = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool", "int8", "uint8", "int64")
    return [getattr(m, name).abbr for name in (*names, "uint16", "uint64")]


def too_few_elements_are_warned_of(m: Any) -> Any:
    one, none, column = m.ones(1), m.zeros(3, 0), m.ones(2, 1)
    calls = [lambda: m.tensor(1.0).std(), lambda: one.var(0), lambda: none.std(1), lambda: none.std(0), one.cov,
             column.cov, column.corrcoef, lambda: column.var(1), lambda: column.var(1, correction=0),
             lambda: column.var((0, 1), correction=3), lambda: m.var_mean(one), lambda: column.var(0), column.std,
             lambda: m.cov(one, correction=0), none.cov]  # fmt: skip
    counts = []
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        counts.append([("degrees of freedom" in str(w.message), w.category.__name__) for w in caught])
    return counts


def resizing_counts_as_a_write(m: Any) -> Any:
    x = m.ones(4)
    x.resize_(2, 2)
    mantissa, exponent = parts = m.frexp(m.tensor([6.0, 0.3]))
    whole = x.contiguous(memory_format=m.preserve_format) is x
    leaf = m.ones(2, 3, requires_grad=True)
    view = leaf[:]
    turned = [_error(lambda f=f: f()) for f in (view.t_, lambda: view.transpose_(0, 1), lambda: view.unsqueeze_(0))]
    return [x._version, mantissa, exponent, parts.mantissa is mantissa, parts.exponent is exponent, whole, turned]


def storages_are_copied_and_filled(m: Any) -> Any:
    x = m.arange(4.0)
    storage = x.untyped_storage()
    other = storage.clone()
    apart = other.data_ptr() != storage.data_ptr()
    filled = other.fill_(1).tolist()[:3]
    back = other.copy_(storage).tolist() == storage.tolist()
    storage.fill_(0)
    kinds = [storage.is_cuda, storage.is_shared(), storage.is_pinned(), storage.cpu() is storage]
    return [apart, filled, back, x, kinds, _error(lambda: storage.copy_(m.zeros(9).untyped_storage()))]


def trees_by_the_type_of_leaves(m: Any) -> Any:
    tree = m.utils._pytree
    nested = {"a": [1, 2.5], "b": (3, "x")}
    seen: list[Any] = []
    tree.tree_map_only_(int, seen.append, nested)
    answers = [tree.tree_all_only(int, lambda n: n > 0, nested), tree.tree_any_only(float, lambda n: n > 9, nested)]
    return [seen, answers, [*tree.tree_iter(nested)], tree.tree_is_leaf([1]), tree.tree_is_leaf(1)]


def bags_of_given_embeddings(m: Any) -> Any:
    table = m.arange(12.0).reshape(6, 2)
    bags = m.nn.EmbeddingBag.from_pretrained(table, mode="sum", padding_idx=1)
    free = m.nn.EmbeddingBag.from_pretrained(table, freeze=False, max_norm=2.0)
    parts = [bags.weight.requires_grad, free.weight.requires_grad, bags.padding_idx, free.mode, free.max_norm]
    return [bags(m.tensor([[0, 1], [2, 5]])), *parts, free.weight.shape]


def draws_under_vmap(m: Any) -> Any:
    def draw(x: Any) -> Any:
        return x + m.rand(4)

    x = m.zeros(3)
    distinct = [m.vmap(draw, randomness=kind)(x).unique(dim=0).shape[0] for kind in ("same", "different")]
    return [*distinct, _error(lambda: m.vmap(draw)(x))]


def optimizers_with_hooks_are_pickled(m: Any) -> Any:
    import pickle

    optimizer = m.optim.Adam([m.ones(2, requires_grad=True)], lr=0.5)
    optimizer.register_step_pre_hook(lambda *given: None)
    optimizer.param_groups[0]["params"][0].grad = m.ones(2)
    optimizer.step()
    again = pickle.loads(pickle.dumps(optimizer))
    again.step()
    return [again.param_groups[0]["lr"], again.param_groups[0]["params"][0].detach()]


def _detached(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_detached(part) for part in result)
    return result.detach() if hasattr(result, "detach") else result


def _error(call: Callable[[], Any], message: bool = False) -> Any:
    """The result, or the kind of the error, or its first paragraph."""
    try:
        return call()
    except Exception as error:
        head = re.sub(r"tesserack|torch|; give tensors.*|\.$", "", str(error))
        return f"{type(error).__name__}: {head}" if message else type(error).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        arrays_as_operands,
        complex_numbers_without_an_imaginary_part,
        sizes_and_limits,
        assert_close_says_what_differs,
        derivatives_that_are_strict,
        collated,
        paths_of_trees,
        specs_of_trees_as_text,
        dtypes_have_short_names,
        too_few_elements_are_warned_of,
        resizing_counts_as_a_write,
        storages_are_copied_and_filled,
        trees_by_the_type_of_leaves,
        bags_of_given_embeddings,
        draws_under_vmap,
        optimizers_with_hooks_are_pickled,
    ],
)
def test_protocol(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)

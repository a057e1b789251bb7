"""Functions that programs put into ``torch`` and ``torch.nn.functional`` are called by what calls them in PyTorch."""

from __future__ import annotations

LAYERS = """
    import torch
    import torch.nn.functional as F
    from torch import nn

    calls = []

    def spied(module, name):
        real = getattr(module, name)
        def spy(*args, **kwargs):
            calls.append(name)
            return real(*args, **kwargs)
        return real, spy

    def seen(module, names, run):
        reals = {}
        calls.clear()
        for name in names:
            reals[name], spy = spied(module, name)
            setattr(module, name, spy)
        try:
            run()
        finally:
            for name, real in reals.items():
                setattr(module, name, real)
        found = [*calls]
        calls.clear()
        run()
        return found, calls, all(getattr(module, name) is real for name, real in reals.items())

    rows, lines, planes = torch.ones(2, 4), torch.randn(2, 4, 6), torch.randn(2, 4, 6, 6)
    solids, ids = torch.randn(2, 4, 4, 4, 4), torch.tensor([1, 2])
"""

OF_TORCH = """
    norm = nn.BatchNorm1d(4, momentum=0.5)
    other = nn.BatchNorm1d(4, momentum=0.5)
    cases = [
        ("tanh", lambda: nn.Tanh()(rows)),
        ("sigmoid", lambda: nn.Sigmoid()(rows)),
        ("relu", lambda: nn.ReLU()(rows)),
        ("batch_norm", lambda: norm(lines)),
        ("instance_norm", lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True)(planes)),
        ("layer_norm", lambda: nn.LayerNorm(6)(lines)),
        ("layer_norm", lambda: F.layer_norm(lines, (6,))),
        ("group_norm", lambda: nn.GroupNorm(2, 4)(lines)),
        ("rms_norm", lambda: nn.RMSNorm(6)(lines)),
        ("embedding", lambda: nn.Embedding(5, 3, padding_idx=1)(ids)),
        ("embedding", lambda: nn.Embedding(5, 3, max_norm=0.1)(ids)),
        ("embedding_bag", lambda: nn.EmbeddingBag(5, 3)(ids, torch.tensor([0]))),
        ("embedding_bag", lambda: nn.EmbeddingBag(5, 3, mode="sum")(ids.view(1, 2))),
        ("rrelu", lambda: nn.RReLU()(rows)),
        ("max_pool3d", lambda: nn.MaxPool3d(2)(solids)),
        ("adaptive_max_pool1d", lambda: nn.AdaptiveMaxPool1d(2)(lines)),
        ("ctc_loss", lambda: nn.CTCLoss()(lines.log_softmax(-1), ids.view(1, 2).expand(4, 2) - 0,
            torch.full((4,), 2), torch.full((4,), 1))),
        ("grid_sampler", lambda: F.grid_sample(planes, torch.zeros(2, 3, 3, 2), align_corners=False)),
        ("affine_grid_generator", lambda: F.affine_grid(torch.ones(2, 2, 3), [2, 4, 3, 3], align_corners=False)),
        ("softmax", lambda: nn.Softmax(-1)(rows)),
        ("dropout", lambda: nn.Dropout()(rows)),
    ]
    for name, run in cases:
        print(name, *seen(torch, [name], run))
    with torch.no_grad():
        norm.load_state_dict(other.state_dict())
        real = torch.batch_norm
        torch.batch_norm = lambda *args: real(*args)
        spied = norm(lines)
        torch.batch_norm = real
        print(torch.equal(spied, other(lines)), torch.equal(norm.running_var, other.running_var))
"""


def test_functions_of_torch(program):
    names = [
        *("tanh", "sigmoid", "relu", "batch_norm", "instance_norm", "layer_norm", "layer_norm", "group_norm"),
        *("rms_norm", "embedding", "embedding", "embedding_bag", "embedding_bag", "rrelu", "max_pool3d"),
        *("adaptive_max_pool1d", "ctc_loss", "grid_sampler", "affine_grid_generator"),
    ]
    expected = [f"{name} {[name]} [] True" for name in names]
    not_called = ["softmax [] [] True", "dropout [] [] True"]  # PyTorch calls a method, and another function
    assert program.run(LAYERS + OF_TORCH) == [*expected, *not_called, "True True"]


OF_FUNCTIONAL = """
    q = torch.randn(3, 2, 4)
    names = ["linear", "softmax", "scaled_dot_product_attention", "dropout", "hardtanh", "relu6", "tanh", "sigmoid",
        "logsigmoid", "pairwise_distance", "log_softmax"]
    attend = nn.MultiheadAttention(4, 2)
    cases = [
        lambda: attend(q, q, q),
        lambda: attend(q, q, q, need_weights=False),
        lambda: nn.MultiheadAttention(4, 2, dropout=0.5)(q, q, q),
        lambda: attend(q, q.clone(), q.clone()),
        lambda: nn.ReLU6()(rows),
        lambda: nn.Tanh()(rows),
        lambda: nn.Sigmoid()(rows),
        lambda: nn.MultiLabelSoftMarginLoss()(rows, rows),
        lambda: nn.TripletMarginWithDistanceLoss()(rows, rows, rows),
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2]).log_prob(rows),
    ]
    for run in cases:
        print(*seen(F, names, run))
"""


def test_functions_of_nn_functional(program):
    expected = [
        ["linear", "softmax", "linear"],
        ["linear", "scaled_dot_product_attention", "linear"],
        ["linear", "softmax", "dropout", "linear"],
        ["linear", "linear", "linear", "softmax", "linear"],
        ["hardtanh"],
        [],
        [],
        ["logsigmoid", "logsigmoid"],
        ["pairwise_distance", "pairwise_distance"],
        ["linear", "log_softmax", "linear", "linear", "log_softmax"],
    ]
    assert program.run(LAYERS + OF_FUNCTIONAL) == [f"{names} [] True" for names in expected]


FORMS = """
    import torch
    import torch.nn.functional as F
    x, w = torch.randn(2, 3, 4), torch.rand(3) + 0.5
    mean, var = torch.zeros(3), torch.ones(3)
    print(torch.equal(torch.batch_norm(x, w, None, mean, var, False, 0.1, 1e-5, True), F.batch_norm(x, mean, var, w)))
    print(torch.equal(torch.instance_norm(x, w, None, None, None, True, 0.1, 1e-5, True), F.instance_norm(x, weight=w)))
    print(torch.equal(torch.layer_norm(x, (4,), None, None, 1e-5, True), F.layer_norm(x, (4,))))
    print(torch.equal(torch.group_norm(x, 3, w, None, 1e-5, False), F.group_norm(x, 3, w)))
    table, ids = torch.randn(5, 2), torch.tensor([4, 0])
    print(torch.equal(torch.embedding(table, ids), table[ids]), torch.embedding(table, ids, 4, False, False).shape)
"""


def test_functions_of_torch_take_their_own_order(program):
    assert program.run(FORMS) == ["True"] * 4 + ["True torch.Size([2, 2])"]


WAYS = """
    import functools, unittest.mock
    import torch
    import torch.nn.functional as F
    from torch import nn

    calls, layer, x = [], nn.LayerNorm(4), torch.ones(2, 4)

    def named(name, real):
        @functools.wraps(real)
        def spy(*args, **kwargs):
            calls.append(name)
            return real(*args, **kwargs)
        return spy

    def seen():
        calls.clear()
        layer(x)
        return [*calls]

    real, function = torch.layer_norm, F.layer_norm
    with unittest.mock.patch("torch.layer_norm", named("mock", real)):
        print(seen())
    print(seen(), torch.layer_norm is real)
    torch.layer_norm = first = named("first", real)
    torch.layer_norm = named("second", first)
    print(seen())
    torch.layer_norm = first
    print(seen())
    between = F.layer_norm
    F.layer_norm = named("functional", between)
    print(seen())
    F.layer_norm = between
    print(seen())
    torch.layer_norm = real
    print(seen(), torch.layer_norm is real)
    layer(x)
    F.layer_norm = function
    print(seen())
    inside = named("inside", torch.nn.functional.layer_norm)
    torch.layer_norm = lambda input, shape, *rest: inside(input, shape)
    print(seen())
"""


def test_replacements_come_and_go_in_any_way(program):
    assert program.run(WAYS) == [
        "['mock']",
        "[] True",
        "['second', 'first']",
        "['first']",
        "['functional', 'first']",
        "['first']",
        "[] True",
        "[]",
        "['inside']",
    ]

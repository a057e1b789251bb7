"""state_dict and load_state_dict."""

import pytest
import tesserack as ts
from tesserack import nn


def net():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1, bias=False))


KEYS = [
    "0.weight",
    "0.bias",
    "1.weight",
    "1.bias",
    "1.running_mean",
    "1.running_var",
    "1.num_batches_tracked",
    "2.weight",
]


def test_names_sharing_and_gradients(device):
    model = net().to(device)
    state = model.state_dict()
    assert list(state) == KEYS
    assert not any(t.requires_grad for t in state.values())
    assert all(t.requires_grad for k, t in model.state_dict(keep_vars=True).items() if "weight" in k)
    with ts.no_grad():
        model[0].weight.fill_(7)
    assert state["0.weight"].tolist() == [[7.0, 7.0]] * 3
    assert next(iter(model.state_dict(prefix="m."))) == "m.0.weight"
    assert state._metadata["1"]["version"] == 2


def test_round_trip(device):
    a, b = net().to(device), net().to(device)
    x = ts.randn(5, 2, device=device)
    a(x)
    assert repr(b.load_state_dict(a.state_dict())) == "<All keys matched successfully>"
    assert ts.equal(a.eval()(x), b.eval()(x))
    weight = b[0].weight
    b.load_state_dict(a.state_dict())
    assert b[0].weight is weight and weight.requires_grad


def test_all_problems_are_listed():
    state = net().state_dict()
    del state["0.bias"]
    state["extra"] = ts.ones(1)
    state["0.deep.er"] = ts.ones(1)
    state["2.weight"] = ts.ones(4, 4)
    state["1.weight"] = 3
    with pytest.raises(RuntimeError) as caught:
        net().load_state_dict(state)
    text = str(caught.value)
    assert "Error(s) in loading state_dict for Sequential" in text
    assert 'Missing key(s) in state_dict: "0.bias"' in text
    assert 'Unexpected key(s) in state_dict: "extra", "0.deep.er"' in text
    assert "size mismatch for 2.weight" in text and "[4, 4]" in text and "[1, 3]" in text
    assert "1.weight: expected a Tensor, got int" in text


def test_not_strict_returns_what_did_not_match():
    state = net().state_dict()
    del state["0.bias"]
    state["extra"] = ts.ones(1)
    answer = net().load_state_dict(state, strict=False)
    assert answer == (["0.bias"], ["extra"]) == (answer.missing_keys, answer.unexpected_keys)
    assert repr(answer) == "_IncompatibleKeys(missing_keys=['0.bias'], unexpected_keys=['extra'])"


def test_shapes_are_checked_even_when_not_strict():
    with pytest.raises(RuntimeError, match=r"size mismatch for weight"):
        nn.Linear(2, 2).load_state_dict({"weight": ts.ones(1)}, strict=False)


def test_not_a_dict():
    with pytest.raises(TypeError, match="dict"):
        net().load_state_dict([1])


def test_assign_takes_the_tensors_themselves():
    given = ts.ones(3, 2, dtype=ts.float64)
    layer = nn.Linear(2, 3)
    layer.load_state_dict({"weight": given, "bias": ts.zeros(3)}, assign=True)
    assert layer.weight.dtype == ts.float64 and isinstance(layer.weight, nn.Parameter) and layer.weight.requires_grad
    given.fill_(5)
    assert layer.weight[0, 0].item() == 5


def test_loading_converts_dtypes():
    layer = nn.Linear(1, 1, bias=False)
    layer.load_state_dict({"weight": ts.full((1, 1), 2.0, dtype=ts.float64)})
    assert layer.weight.dtype == ts.float32 and layer.weight.item() == 2


def test_absent_parameters_and_non_persistent_buffers_are_not_stored():
    m = nn.Linear(1, 1, bias=False)
    m.register_buffer("seen", ts.ones(1), persistent=False)
    m.register_buffer("nothing", None)
    assert list(m.state_dict()) == ["weight"]
    m.load_state_dict({"weight": ts.ones(1, 1)})


def test_hooks():
    a = net()
    calls = []
    a.register_state_dict_pre_hook(lambda m, prefix, keep: calls.append(("pre", prefix, keep)))
    a.register_state_dict_post_hook(lambda m, state, prefix, meta: state.__delitem__("0.bias"))
    state = a.state_dict()
    assert calls == [("pre", "", False)] and "0.bias" not in state

    def rename(module, state, prefix, *rest):
        assert module is b[0]
        state[prefix + "weight"] = state.pop(prefix + "kernel")

    b = net()
    b[0].register_load_state_dict_pre_hook(rename)
    b.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    state["0.kernel"] = state.pop("0.weight")
    assert b.load_state_dict(state).missing_keys == []
    assert "0.kernel" in state  # the caller's dict is left alone


def test_extra_state():
    class Counting(nn.Module):
        n = 0

        def get_extra_state(self):
            return {"n": self.n}

        def set_extra_state(self, state):
            self.n = state["n"]

    a, b = nn.Sequential(Counting()), nn.Sequential(Counting())
    a[0].n = 5
    state = a.state_dict()
    assert state["0._extra_state"] == {"n": 5}
    b.load_state_dict(state)
    assert b[0].n == 5
    with pytest.raises(RuntimeError, match=r'Missing key.*"0._extra_state"'):
        b.load_state_dict({})
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"_extra_state"'):
        nn.ReLU().load_state_dict({"_extra_state": 1})


def test_a_module_may_store_itself_in_another_way():
    class Twice(nn.Linear):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "double"] = self.weight.detach() * 2

        def _load_from_state_dict(self, state_dict, prefix, meta, strict, missing, unexpected, errors):
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "double") / 2
            super()._load_from_state_dict(state_dict, prefix, meta, strict, missing, unexpected, errors)

    a, b = (nn.Sequential(Twice(2, 2, bias=False)) for _ in range(2))
    assert list(a.state_dict()) == ["0.double"]
    b.load_state_dict(a.state_dict())
    assert ts.equal(a[0].weight, b[0].weight)


def test_batch_norm_state_without_the_count_is_accepted_from_version_1():
    state = nn.BatchNorm1d(2).state_dict()
    del state["num_batches_tracked"]
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        nn.BatchNorm1d(2).load_state_dict(state)
    nn.BatchNorm1d(2).load_state_dict(dict(state))


def test_values_given_to_a_meta_parameter_are_told_of():
    layer = nn.Linear(2, 2, bias=False, device="meta")
    state = {"weight": ts.ones(2, 2)}
    with pytest.warns(UserWarning, match="for weight: copying from a non-meta parameter .* no-op.*assign=True"):
        layer.load_state_dict(state)
    layer.load_state_dict(state, assign=True)
    assert layer.weight.tolist() == [[1, 1], [1, 1]]

"""What ``jit.script`` gives back: what it counts as, and files of it."""

from __future__ import annotations

import copy
import io
import math
import pickle
import warnings

import pytest
import tesserack as ts
from tesserack import jit, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.tied = self.first

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        return self.norm(self.tied(x)).relu()


def twice(x: ts.Tensor) -> ts.Tensor:
    return x * 2


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def test_what_counts_as_a_script():
    net = Net()
    assert not isinstance(net, jit.ScriptModule) and not hasattr(net, "save")
    net = jit.script(net)
    assert jit.script(net) is net and isinstance(net, jit.ScriptModule) and isinstance(net, jit.RecursiveScriptModule)
    assert isinstance(net.first, jit.ScriptModule) and not isinstance(Net(), jit.ScriptModule)
    assert all(isinstance(again, jit.ScriptModule) for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))))
    assert net.original_name == "Net" and isinstance(jit.trace(Net().eval(), ts.ones(1, 2)), jit.ScriptModule)
    assert not isinstance(twice, jit.ScriptFunction) and isinstance(jit.script(twice), jit.ScriptFunction)
    assert jit.script(len) is len and not isinstance(math.sin, jit.ScriptFunction)

    class Own(jit.ScriptModule):
        pass

    assert isinstance(Own(), jit.ScriptModule) and not isinstance(net, Own) and not isinstance(3, jit.ScriptModule)
    assert list(net.state_dict()) == list(Net().state_dict())


def test_a_script_shares_tensors_and_nothing_else():
    net = Net()
    net.history, net.own = [net.first], net.forward
    net.history.append(net.history)  # which holds itself
    script = jit.script(net)
    assert script is not net and not isinstance(net, jit.ScriptModule) and not isinstance(net.first, jit.ScriptModule)
    assert all(a is b for a, b in zip(script.parameters(), net.parameters(), strict=True))
    assert all(a is b for a, b in zip(script.buffers(), net.buffers(), strict=True))
    assert script.tied is script.first is not net.first and script.own.__self__ is script
    assert script.history[0] is script.first and script.history[1] is script.history is not net.history
    script.eval()
    assert net.training and net.norm.training and not script.norm.training
    script.first.weight = nn.Parameter(ts.zeros(3, 2))
    script.extra = nn.Linear(1, 1)
    assert net.first.weight.any() and not hasattr(net, "extra")
    before = net.norm.running_mean.clone()
    net(ts.ones(4, 2))  # in training: its statistics are those of the script too
    assert not before.equal(script.norm.running_mean)
    graph = ts.fx.symbolic_trace(Net())
    scripted = jit.script(graph)
    assert scripted.graph is not graph.graph and scripted.eval()(ts.ones(4, 2)).shape == (4, 3) and graph.training


NETS = {
    "lstm": lambda: nn.LSTM(3, 4, 2, batch_first=True),
    "weight_norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)),
    "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)),
    "old weight_norm": lambda: nn.utils.weight_norm(nn.Linear(3, 4)),
    "sequential": lambda: nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("name", NETS)
def test_scripts_compute_what_their_modules_do(name):
    net = NETS[name]().eval()
    x = ts.randn(2, 5, 3) if name == "lstm" else ts.randn(2, 3)
    script = jit.script(net)

    def result(module, given):
        found = module(given)
        return found[0] if isinstance(found, tuple) else found

    assert result(net, x).equal(result(script, x))
    assert result(script.double(), x.double()).dtype == ts.float64 == next(net.parameters()).dtype  # they are shared


def test_scripts_know_that_they_are():
    class Tells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self) -> list[bool]:
            return [jit.is_scripting(), *self.inner(), self.aside(), self.further()]

        @jit.ignore
        def aside(self) -> bool:
            return jit.is_scripting()

        @jit.ignore(drop=False)
        def further(self) -> bool:
            return jit.is_scripting()

    class Inner(nn.Module):
        def forward(self) -> list[bool]:
            assert not jit.onednn_fusion_enabled()
            return [jit.is_scripting(), called()]

    def called() -> bool:
        return jit.is_scripting()

    net = Tells()
    assert net() == [False] * 5
    script = jit.script(net)
    assert script() == [True, True, True, False, False] and net() == [False] * 5 and not jit.is_scripting()
    assert jit.script(called)() and not called() and script.inner()[0]


def test_modules_come_back_from_files(tmp_path, device):
    net = jit.script(Net().to(device).eval())
    x = ts.ones(4, 2, device=device)
    extra = {"text": "words", "bytes": b"\x00\x01"}
    jit.save(net, tmp_path / "net.pt", _extra_files=extra)
    found = {"text": "", "bytes": "", "none": "kept"}
    again = jit.load(str(tmp_path / "net.pt"), _extra_files=found)
    assert found == {"text": b"words", "bytes": b"\x00\x01", "none": "kept"}
    assert again(x).equal(net(x)) and not again.training and isinstance(again, jit.ScriptModule)
    assert again.tied is again.first and again.first.weight.device == net.first.weight.device
    file = io.BytesIO()
    again.train().save(file)
    file.seek(0)
    on_cpu = jit.load(file, map_location="cpu")
    assert on_cpu.training and {t.device.type for t in on_cpu.state_dict().values()} == {"cpu"}


def test_functions_come_back_from_files():
    file = io.BytesIO()
    jit.save(jit.script(twice), file)
    assert jit.load(file).__wrapped__ is twice


def test_what_cannot_be_saved_says_so(tmp_path):
    class Local(nn.Module):
        pass

    for refused in (Local(), lambda x: x):
        with pytest.raises(RuntimeError, match=r"jit\.save: expected a \w+ that pickles.*save the state_dict"):
            jit.save(refused, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(RuntimeError, match=r"jit\.load: expected a file of jit\.save"):
        jit.load(tmp_path / "text")


def test_archives_of_pytorch_are_refused(tmp_path):
    torch = pytest.importorskip("torch", reason="needs torch to write an archive")
    torch.jit.save(torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1, 1)), str(tmp_path / "theirs.pt"))
    with pytest.raises(NotImplementedError, match="load a state_dict"):
        jit.load(tmp_path / "theirs.pt")


def test_scripts_pass_between_programs(program):
    program.write(
        "net.py",
        """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 2)
                self.act = torch.nn.functional.gelu

            def forward(self, x):
                return self.act(self.fc(x))
        """,
    )
    first = program.run(
        """
        import torch
        from net import Net

        scripted = torch.jit.script(Net())
        torch.nn.init.ones_(scripted.fc.weight)
        print(isinstance(scripted, torch.jit.ScriptModule), scripted(torch.ones(1, 2)).shape)
        scripted.save("net.pt")
        """
    )
    assert first == ["True torch.Size([1, 2])"]
    second = program.run(
        """
        import torch

        net = torch.jit.load("net.pt", map_location="cpu")
        print(type(net).__name__, net.fc.weight.tolist(), isinstance(net, torch.jit.ScriptModule))
        """
    )
    assert second == ["Net [[1.0, 1.0], [1.0, 1.0]] True"]
    (program.folder / "net.py").unlink()
    third = program.run(
        """
        import torch
        try:
            torch.jit.load("net.pt")
        except RuntimeError as error:
            print("can be imported" in str(error), "'net'" in str(error))
        """
    )
    assert third == ["True True"]


def test_scripted_functions_are_no_methods_and_keep_their_source(tmp_path):
    from tesserack import jit

    def scaled(x: ts.Tensor, by: float = 2.0) -> ts.Tensor:
        return x * by

    with pytest.warns(DeprecationWarning):
        script = jit.script(scaled)

    class Holds:
        function = script

    assert Holds().function(ts.ones(1)).item() == 2.0
    assert script.__name__ == "scaled" and isinstance(script, jit.ScriptFunction) and script.__wrapped__ is scaled
    jit.save(script, str(tmp_path / "function.pt"))
    assert jit.load(str(tmp_path / "function.pt"))(ts.ones(1), by=3.0).item() == 3.0
    assert pickle.loads(pickle.dumps(jit.script(len_of)))(ts.ones(4)) == 4


def len_of(x):
    return len(x)


WRONG_CALLS = """
    import typing, warnings
    import torch
    from torch import Tensor, nn

    warnings.simplefilter("ignore")

    @torch.jit.script
    def f(x, n: int = 2, s: float = 1.0):
        return x * n + s

    @torch.jit.script
    def g(a: typing.Optional[Tensor], names: typing.List[str], pair: typing.Tuple[int, int], d: typing.Dict[str, int]):
        return len(names)

    def commented(x, n):
        # type: (str, List[int]) -> str
        return x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, x, n: int = 1):
            if n > 9:
                raise ValueError("of the body")
            return self.lin(x) * n

    class Old(torch.jit.ScriptModule):
        @torch.jit.script_method
        def forward(self, x, n: int = 1):
            return x * n

    x, net, old = torch.ones(1, 2), torch.jit.script(Net()), Old()

    def told(call, *args, **kwargs):
        try:
            call(*args, **kwargs)
            return "ran"
        except RuntimeError as error:
            return str(error).partition(". ")[0].partition("\\n")[0].rstrip(".")

    for call in (f, net, old):
        print([told(call, x), told(call, x, True), told(call, x=x, n=1)])
        print([told(call), told(call, "a"), told(call, x, "s"), told(call, x, zz=1), told(call, x, x=x)])
    print([told(f, value) for value in (1, 2.5, [1])], told(f, x, 1.5), told(f, x, 1, "s"), told(f, x, 1, 2))
    good = {"a": x, "names": ["a"], "pair": (1, 2), "d": {"a": 1}}
    print({told(g, **{**good, **each}) for each in (
        {}, {"a": None}, {"names": ("a",)}, {"names": "ab"}, {"names": []}, {"pair": [1, 2]}, {"d": {}})})
    for each in ({"a": "s"}, {"names": [1]}, {"names": x}, {"pair": (1, 2, 3)}, {"pair": (1.5, 1)}, {"d": {"a": "b"}}):
        print(told(g, **{**good, **each}))
    print(told(torch.jit.script(commented), "a", [1]))
    try:
        Net()("a")
    except TypeError:
        print("plain modules as ever")
"""


def test_wrong_arguments_of_scripts_are_runtime_errors(program):
    """As their schema is looked at before anything runs; what PyTorch says stands first in its messages too."""

    def refused(name: str) -> str:
        inferred = "Expected a value of type 'Tensor (inferred)' for argument 'x' but instead found type 'str'"
        return str(
            [
                f"{name}() is missing value for argument 'x'",
                f"{name}() {inferred}",
                f"{name}() Expected a value of type 'int' for argument 'n' but instead found type 'str'",
                f"Unknown keyword argument 'zz' for operator '{name}'",
                "Argument 'x' specified both as positional and keyword argument",
            ]
        )

    def expected(kind: str, name: str, found: str, function: str = "g") -> str:
        return f"{function}() Expected a value of type '{kind}' for argument '{name}' but instead found type '{found}'"

    lines = program.run(WRONG_CALLS)
    ran = "['ran', 'ran', 'ran']"
    assert lines[:6] == [ran, refused("f"), ran, refused("forward"), ran, refused("forward")]
    numbers = [expected("Tensor (inferred)", "x", each, "f") for each in ("int", "float", "list")]
    others = (expected("int", "n", "float", "f"), expected("float", "s", "str", "f"), "ran")
    assert lines[6] == " ".join((str(numbers), *others))
    assert lines[7:] == [
        "{'ran'}",
        expected("Optional[Tensor]", "a", "str"),
        expected("List[str]", "names", "list"),
        expected("List[str]", "names", "Tensor"),
        expected("Tuple[int, int]", "pair", "tuple"),
        expected("Tuple[int, int]", "pair", "tuple"),
        expected("Dict[str, int]", "d", "dict"),
        "ran",
        "plain modules as ever",
    ]

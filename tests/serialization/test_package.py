"""Packages: what goes in, what stays outside, and that code in them sees nothing else."""

from __future__ import annotations

import importlib
import importlib.resources
import inspect
import io
import pickle
import re
import sys
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tesserack as ts
from tesserack import fx, nn
from tesserack.package import (
    EmptyMatchError,
    GlobGroup,
    ObjMismatchError,
    ObjNotFoundError,
    OrderedImporter,
    PackageExporter,
    PackageImporter,
    PackagingError,
    is_from_package,
    sys_importer,
)
from tesserack.package.analyze import find_first_use_of_broken_modules, trace_dependencies
from tesserack.package.find_file_dependencies import find_files_source_depends_on

SOURCES = {
    "shop_a/__init__.py": "from shop_a.sub import leaf\nclass Thing:\n    def __init__(self, v): self.v = v\n",
    "shop_a/sub.py": "import math\nfrom . import data\ndef leaf(x):\n    return data.FACTOR * x + math.floor(0.5)\n",
    "shop_a/data.py": "FACTOR = 3\n",
    "shop_a/broken.py": "import shop_b\ndef fails():\n    raise ValueError('here')  # the line\n",
    "shop_a/hack.py": "import os\nimport os.path\nimport typing\nplace = os.path.join('a', 'b')\n",
    "shop_a/model.py": (
        "import tesserack as ts\nfrom shop_a.sub import leaf\nclass Net(ts.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.lin = ts.nn.Linear(3, 2)\n"
        "    def forward(self, x):\n        return leaf(self.lin(x))\n"
    ),
    "plain/__init__.py": "",
    "plain/deep/__init__.py": "",
    "plain/deep/data.py": "from .. import deep\nFACTOR = 3\n",
    "shop_b.py": "value = 7\nclass Other:\n    pass\ndef reach():\n    return Other\n",
}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Modules to package, of this test alone."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("shop_a", "shop_b")]:
        del sys.modules[name]


def exported(write: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    with PackageExporter(file, **options) as exporter:
        write(exporter)
    return io.BytesIO(file.getvalue())


def test_code_runs_from_the_package_alone(shop: Path) -> None:
    def write(exporter: PackageExporter) -> None:
        exporter.intern("shop_a.**")
        exporter.save_module("shop_a")
        assert exporter.interned_modules() == ["shop_a", "shop_a.data", "shop_a.sub"]
        assert exporter.externed_modules() == ["math"]

    file = exported(write)
    outside = importlib.import_module("shop_a")
    (shop / "shop_a" / "data.py").write_text("FACTOR = 100\n")
    importer = PackageImporter(file)
    module: Any = importer.import_module("shop_a")
    assert module is not outside
    assert module.leaf(5) == 15
    assert sys.modules["shop_a"] is outside
    assert not any("torch_package" in name for name in sys.modules)
    assert module.__name__ == f"{importer.id()}.shop_a"
    assert is_from_package(module)
    assert is_from_package(module.Thing(1))
    assert not is_from_package(outside)
    assert importer.import_module(module.__name__) is module
    with pytest.raises(ModuleNotFoundError, match="self-contained"):
        importer.import_module("shop_b")
    assert PackageImporter(file).import_module("shop_a") is not module


def test_sources_and_lines_are_found(shop: Path) -> None:
    def write(exporter: PackageExporter) -> None:
        exporter.intern("**")
        exporter.save_module("shop_a.broken")
        exporter.save_module("shop_a.hack")
        exporter.save_module("shop_a")

    importer = PackageImporter(exported(write))
    broken: Any = importer.import_module("shop_a.broken")
    with pytest.raises(ValueError, match="here") as caught:
        broken.fails()
    assert "# the line" in "".join(traceback.format_exception(caught.value))
    thing = importer.import_module("shop_a").Thing
    assert inspect.getsource(thing).startswith("class Thing")
    assert importer.import_module("shop_a.hack").place == "a/b"  # type: ignore[attr-defined]


def test_what_is_done_with_modules(shop: Path) -> None:
    def write(exporter: PackageExporter) -> None:
        exporter.extern("shop_b")
        exporter.intern("shop_a.**")
        seen: list[str] = []
        exporter.register_extern_hook(lambda _, name: seen.append(f"out {name}"))
        gone = exporter.register_intern_hook(lambda _, name: seen.append("never"))
        exporter.register_intern_hook(lambda _, name: seen.append(f"in {name}"))
        gone.remove()
        exporter.save_module("shop_a.broken")
        exporter.close()
        assert seen == ["in shop_a.broken", "out shop_b"]

    file = io.BytesIO()
    write(PackageExporter(file))
    importer = PackageImporter(file)
    broken: Any = importer.import_module("shop_a.broken")
    assert broken.shop_b is importlib.import_module("shop_b")
    with pytest.raises(ImportError, match="disallowed"):
        PackageImporter(file, module_allowed=lambda name: name != "shop_b")


def test_mocked_modules_fail_once_they_are_used(shop: Path) -> None:
    def write(exporter: PackageExporter) -> None:
        exporter.mock("shop_b")
        exporter.save_source_string("user", "from shop_b import value\ndef use():\n    return value + 1\n")
        assert exporter.mocked_modules() == ["shop_b"]

    user: Any = PackageImporter(exported(write)).import_module("user")
    assert "MockedObject" in repr(user.value)
    for use in (user.use, lambda: user.value(), lambda: user.value.name, lambda: list(user.value)):
        with pytest.raises(NotImplementedError, match="mocked out"):
            use()


def failure(shop: Path, write: Any, **options: Any) -> PackagingError:
    with pytest.raises(PackagingError) as caught:
        exported(write, **options)
    return caught.value


def test_errors_name_every_module(shop: Path) -> None:
    def denied(exporter: PackageExporter) -> None:
        exporter.deny("shop_b")
        exporter.intern("**")
        exporter.save_source_string("one", "import shop_a.broken\n")
        assert exporter.denied_modules() == ["shop_b"]

    error = failure(shop, denied, debug=True)
    assert "denied by a pattern.\n    shop_b" in str(error)
    assert "one -> shop_a.broken -> shop_b" in str(error)
    assert find_first_use_of_broken_modules(error) == {"shop_b": ["one", "shop_a.broken", "shop_b"]}

    text = str(failure(shop, lambda e: e.save_source_string("one", "import sys, shop_b, shop_a\nimport nosuch\n")))
    assert re.findall(r"^    (\w+)$", text, re.M) == ["sys", "shop_b", "shop_a"]
    assert "Set debug=True" in text

    def mocked(exporter: PackageExporter) -> None:
        exporter.mock("shop_b")
        exporter.save_pickle("res", "o.pkl", importlib.import_module("shop_b").Other())

    assert "still being used" in str(failure(shop, mocked))

    def native(exporter: PackageExporter) -> None:
        exporter.intern("**")
        exporter.save_source_string("one", "import numpy.linalg._umath_linalg\n")

    assert "C extension module" in str(failure(shop, native))
    assert "Dependency resolution failed" in str(
        failure(shop, lambda e: e.save_source_string("one", "from ... import x"))
    )

    def empty(exporter: PackageExporter) -> None:
        exporter.mock(["shop_b", "shop_a.*"], allow_empty=False)

    with pytest.raises(EmptyMatchError, match="did not match any modules"):
        exported(empty)


def test_a_failed_package_leaves_the_file_as_it_was(shop: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.pt"
    path.write_bytes(b"before")

    def fail(exporter: PackageExporter) -> None:
        exporter.save_source_string("one", "import shop_b\n")
        exporter.close()

    with pytest.raises(PackagingError):
        fail(PackageExporter(path))
    assert path.read_bytes() == b"before"

    def interrupted(exporter: PackageExporter) -> None:
        with exporter:
            exporter.save_text("a", "b.txt", "c")
            raise KeyError("mine")

    with pytest.raises(KeyError):
        interrupted(PackageExporter(path))
    assert path.read_bytes() == b"before"
    buffer = io.BytesIO()
    with pytest.raises(KeyError):
        interrupted(PackageExporter(buffer))
    assert zipfile.ZipFile(buffer).namelist() == ["archive/a/b.txt"]
    with PackageExporter(str(path)) as exporter:
        exporter.save_text("a", "b.txt", "c")
    assert zipfile.ZipFile(path).namelist()[0] == "out/a/b.txt"


@pytest.mark.parametrize("protocol", [3, 4])
def test_objects_come_back_with_shared_memory(shop: Path, protocol: int, device: Any) -> None:
    base = ts.arange(6, device=device)
    module = importlib.import_module("shop_a.model").Net().to(device)
    x = ts.ones(2, 3, device=device)
    sent = {"base": base, "part": base[2:4], "net": module, "again": module.lin.weight, "dtype": ts.bfloat16}

    def write(exporter: PackageExporter) -> None:
        exporter.intern("shop_a.**")
        exporter.save_pickle("res", "o.pkl", sent, pickle_protocol=protocol)
        exporter.save_pickle("res", "p.pkl", [base, ts.zeros(0), base.double()], pickle_protocol=protocol)

    file = exported(write)
    assert sum(name.endswith(".storage") for name in zipfile.ZipFile(file).namelist()) == 5
    importer = PackageImporter(file)
    got = importer.load_pickle("res", "o.pkl")
    got["base"][2] = 77
    assert got["part"].tolist() == [77, 3]
    assert got["net"](x).equal(module(x))
    assert got["again"] is got["net"].lin.weight
    assert got["dtype"] is ts.bfloat16
    assert type(got["net"]) is not type(module)
    assert got["base"].device == base.device
    assert [t.tolist() for t in importer.load_pickle("res", "p.pkl")] == [[0, 1, 2, 3, 4, 5], [], [0, 1, 2, 3, 4, 5]]
    assert importer.load_pickle("res", "p.pkl", map_location="cpu")[0].device == ts.device("cpu")


def test_objects_of_packages_go_into_others(shop: Path) -> None:
    def write(exporter: PackageExporter) -> None:
        exporter.intern("**")
        exporter.save_pickle("res", "o.pkl", importlib.import_module("shop_a").Thing(4))

    first = PackageImporter(exported(write))
    thing = first.load_pickle("res", "o.pkl")

    def again(exporter: PackageExporter) -> None:
        exporter.intern("**")
        exporter.save_pickle("res", "o.pkl", thing)

    with pytest.raises(pickle.PicklingError):
        exported(again)
    with pytest.raises(pickle.PicklingError):
        exported(again, importer=[sys_importer, first])  # there is another of this name, which is not a match
        exported(again, importer=sys_importer)
    second = PackageImporter(exported(again, importer=[first, sys_importer]))
    made = second.load_pickle("res", "o.pkl")
    assert made.v == 4
    assert type(made) is second.import_module("shop_a").Thing  # type: ignore[attr-defined]
    kind = type(thing)
    assert first.get_name(kind) == ("shop_a", "Thing")
    with pytest.raises(ObjMismatchError, match="before 'sys_importer'"):
        sys_importer.get_name(kind)
    with pytest.raises(ObjNotFoundError):
        OrderedImporter(sys_importer).get_name(kind)


def test_graphs_are_written_as_programs(shop: Path) -> None:
    leaf = importlib.import_module("shop_a.sub").leaf
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(ts.relu, (graph.call_function(leaf, (graph.call_module("lin", (x,)),)),)))
    module = fx.GraphModule({"lin": nn.Linear(2, 2)}, graph)
    module.note = "kept"

    def write(exporter: PackageExporter) -> None:
        exporter.intern("shop_a.**")
        exporter.save_pickle("res", "g.pkl", module)

    file = exported(write)
    importer = PackageImporter(file)
    got = importer.load_pickle("res", "g.pkl")
    value = ts.randn(3, 2)
    assert got(value).equal(module(value))
    assert got.note == "kept"
    assert "relu" in got.code
    assert "shop_a.sub" in importer.modules
    assert "archive/fx-generated/_0.py" in zipfile.ZipFile(file).namelist()
    assert fx.symbolic_trace(got)(value).equal(module(value))


def test_names_are_ours_once_import_torch_means_pytorch_again() -> None:
    with ts.compat.enable():
        importlib.import_module("torch.fx")
    module = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    file = io.BytesIO()
    with PackageExporter(file) as exporter:
        exporter.save_pickle("res", "g.pkl", module)
    pickled = zipfile.ZipFile(file).read("archive/res/g.pkl")
    assert b"tesserack.fx.graph_module\nreduce" in pickled and b"torch.fx" not in pickled.replace(b"tesserack", b"")


class Reduced:
    """Says itself how it lies in a package."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __reduce_package__(self, exporter: PackageExporter) -> Any:
        name = f"reduced_{exporter.get_unique_id()}"
        exporter.save_text("texts", name, self.text)
        return rebuilt, (name,)


def rebuilt(importer: PackageImporter, name: str) -> Reduced:
    return Reduced(importer.load_text("texts", name))


def test_objects_may_say_how_they_are_saved() -> None:
    one = Reduced("mine")

    def write(exporter: PackageExporter) -> None:
        exporter.extern(__name__)
        exporter.save_pickle("res", "o.pkl", [one, one, Reduced("other")])
        exporter.save_pickle("res", "p.pkl", one)

    importer = PackageImporter(exported(write))
    got = importer.load_pickle("res", "o.pkl")
    assert [item.text for item in got] == ["mine", "mine", "other"]
    assert got[0] is got[1]
    assert importer.load_pickle("res", "p.pkl").text == "mine"


def test_resources(shop: Path, tmp_path: Path) -> None:
    source = (
        "import importlib.resources\nimport torch_package_importer as own\n"
        "def read():\n    return own.load_text('shop.res', 'a.txt')\n"
    )

    def write(exporter: PackageExporter) -> None:
        exporter.save_text("shop.res", "a.txt", "é")
        exporter.save_binary("shop.res", "b.txt", b"bytes")
        exporter.save_text("shop.res.deep", "c.txt", "deep")
        exporter.save_source_string("shop", source, is_package=True)
        with pytest.raises(ValueError, match="only a file name"):
            exporter.save_text("shop", "a/b.txt", "c")
        with pytest.raises(AssertionError, match="already exists"):
            exporter.save_text("shop.res", "a.txt", "again")

    file = exported(write)
    zipfile.ZipFile(file).extractall(tmp_path / "unpacked")
    for importer in (PackageImporter(file), PackageImporter(tmp_path / "unpacked" / "archive")):
        assert importer.load_text("shop.res", "a.txt") == "é"
        reader: Any = importer.get_resource_reader("shop.res")
        assert sorted(reader.contents()) == ["a.txt", "b.txt", "deep"]
        assert reader.is_resource("a.txt")
        assert not reader.is_resource("deep")
        assert reader.open_resource("b.txt").read() == b"bytes"
        module: Any = importer.import_module("shop.res")
        assert importlib.resources.files(module).joinpath("b.txt").read_bytes() == b"bytes"
        shown = str(importer.file_structure(include="shop/**"))
        assert [line.split()[-1] for line in shown.splitlines()[1:]] == [
            "shop", "res", "deep", "c.txt", "a.txt", "b.txt", "__init__.py"
        ]  # fmt: skip
        assert importer.file_structure().has_file("shop/res/a.txt")
        assert not importer.file_structure(exclude="**/*.txt").has_file("shop/res/a.txt")
        assert importer.python_version() == ".".join(map(str, sys.version_info[:3]))
    with pytest.raises(FileNotFoundError):
        PackageImporter(file).get_resource_reader("shop.res").resource_path("a.txt")  # type: ignore[union-attr]
    assert importer.import_module("shop").read() == "é"  # type: ignore[attr-defined]
    assert Path(reader.resource_path("a.txt")).read_text(encoding="utf-8") == "é"


def test_folders_of_sources(shop: Path) -> None:
    def write(exporter: PackageExporter) -> None:
        exporter.extern("shop_b")
        exporter.save_source_file("renamed", str(shop / "plain"))
        exporter.save_source_file("single", str(shop / "shop_b.py"))

    importer = PackageImporter(exported(write))
    assert importer.import_module("renamed.deep.data").FACTOR == 3  # type: ignore[attr-defined]
    assert importer.import_module("single").value == 7  # type: ignore[attr-defined]


def test_imports_within_packages() -> None:
    sources = {
        "p": "from . import one\nfrom .deep import *\nimport p.deep.two\nassert p.deep.two is two\n",
        "p.one": "here = __name__\nfrom .deep import two as named\n",
        "p.deep": "__all__ = ['two']\n",
        "p.deep.two": (
            "from ..one import here\nfrom .. import one\n"
            "try:\n    from . import nothing\nexcept ImportError:\n    ok = 1\n"
        ),
    }

    def write(exporter: PackageExporter) -> None:
        for name, source in sources.items():
            exporter.save_source_string(name, source, is_package=name in ("p", "p.deep"), dependencies=False)

    importer = PackageImporter(exported(write))
    module: Any = importer.import_module("p")
    assert module.one.here == f"{importer.id()}.p.one"
    assert module.one.named is module.deep.two
    assert module.deep.two.ok == 1
    with pytest.raises(ModuleNotFoundError):
        importer.import_module("p.one.more")


def test_what_a_text_imports() -> None:
    def found(text: str) -> list[Any]:
        return find_files_source_depends_on(text, "mine.sub")

    assert found("import a.b, c as d\nfrom e import f, g as h\nfrom i import *") == [
        ("a.b", None), ("c", None), ("e", "f"), ("e", "g"), ("i", None)
    ]  # fmt: skip
    assert found("from . import a\nfrom ..b import c") == [("mine.sub", "a"), ("mine.b", "c")]
    assert found("f(__import__('a.b'))") == [("a.b", None), ("a", None)]
    assert found("__import__('a', fromlist=['b', '*'], level=1)") == [("mine.sub.a", "b"), ("mine.sub.a", None)]
    assert found("__import__(name)\n__import__()\n__import__('a', *rest)") == [("a", None)]
    with pytest.raises(SyntaxError):
        found("from import")


def test_what_depends_on_what(shop: Path) -> None:
    def write(exporter: PackageExporter) -> None:
        exporter.intern("**")
        exporter.save_source_string("one", "import shop_a.broken\nimport shop_a.sub\n")
        assert exporter.get_rdeps("shop_b") == ["shop_a.broken"]
        assert exporter.get_rdeps("nosuch") == []
        paths = exporter.all_paths("one", "shop_b")
        assert '"one" -> "shop_a.broken";\n"shop_a.broken" -> "shop_b";' in paths
        assert "shop_a.sub" not in paths
        assert '"shop_a.sub" -> "shop_a.data";' in exporter.dependency_graph_string()

    exported(write)
    reach = importlib.import_module("shop_b").reach
    assert "shop_b" in trace_dependencies(lambda: reach(), [()])


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("torch.**", ["torch", "torch.nn", "torch.nn.f"], ["torchvision", "a.torch"]),
        ("torch.*", ["torch.nn"], ["torch", "torch.nn.f"]),
        ("torch*.**", ["torch", "torchvision.x"], ["a"]),
        ("**.f", ["f", "a.f", "a.b.f"], ["f.a", "af"]),
        ("**", ["a", "a.b"], []),
        (["a+b", "c"], ["a+b", "c"], ["aab"]),
    ],
)
def test_patterns(pattern: Any, matching: list[str], others: list[str]) -> None:
    group = GlobGroup(pattern)
    assert all(map(group.matches, matching))
    assert not any(map(group.matches, others))
    assert not any(map(GlobGroup("**", exclude=pattern).matches, matching))
    with pytest.raises(ValueError, match="entire path segment"):
        GlobGroup("a.**b")


def test_importers_are_what_they_should_be() -> None:
    with pytest.raises(TypeError, match="Importer"):
        PackageExporter(io.BytesIO(), importer=3)  # type: ignore[arg-type]
    unknown: Any = ModuleType("x")
    with pytest.raises(TypeError, match="Importer"):
        OrderedImporter(unknown).import_module("x")
    with pytest.raises(TypeError, match="name of a module"):
        PackageExporter(io.BytesIO()).save_module(unknown)


def test_damaged_packages_are_named(tmp_path: Path) -> None:
    """At every place where a byte is changed or the end is missing: an error in words that names the file, or none."""
    path = tmp_path / "damaged.pt"
    with PackageExporter(path) as exporter:
        exporter.save_source_string("alone", "x = 1\n")
        exporter.save_pickle("here", "values.pkl", {"t": ts.arange(4.0)})
    whole = path.read_bytes()
    flipped = (whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in range(0, len(whole), 7))
    refused = 0
    for contents in (b"", b"<html>", *(whole[:end] for end in range(1, len(whole), 97)), *flipped):
        path.write_bytes(contents)
        try:
            assert PackageImporter(path).load_pickle("here", "values.pkl")["t"].tolist() == [0, 1, 2, 3]
        except ts.serialization.SerializationError as error:
            assert "damaged.pt" in str(error) and "again" in str(error)
            refused += 1
        except (ImportError, LookupError, RuntimeError, ValueError, pickle.UnpicklingError):
            assert len(contents) == len(whole)  # names of records are not covered by their sums
    assert refused > len(whole) // 97

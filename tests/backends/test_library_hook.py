"""Compiled operators that an installed plugin brings, by the hook tesserack_libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from tesserack.utils import cpp_extension

PLUGIN = """
import sys
def tesserack_libraries():
    return {paths}
def tesserack_operators(library):
    library.register_fake("acme::twice", lambda x: x.clone())
"""
SOURCE = """
#include <tesserack/dispatch.hpp>
using namespace tesserack::dispatch;
static void twice(Call& call) { call.give(0, call.invoke("mul", {call.arg(0), 2})); }
static void setup() { define<twice>("acme::twice(Tensor x) -> Tensor", ""); }
TESSERACK_PLUGIN("acme-operators", "1.0", setup);
"""
USE = """
x = ts.ones(2)
print(ts.ops.acme.twice(x).tolist(), ts.ops.acme.twice(x.to("meta")).shape, ts.plugins.loaded())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        cpp_extension.find_compiler()
    except cpp_extension.CompileError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("built")
    return cpp_extension.load_inline("acme_operators", SOURCE, build_directory=folder, kind="plain")


def test_a_plugin_brings_a_library(site, built):
    """It is loaded when the namespace is first used, before the plugin's other hooks."""
    site.package("acme-pkg", PLUGIN.format(paths=[str(built)]), plugin="acme")
    assert site.run(USE) == "[2.0, 2.0] tesserack.Size([2]) ['acme (acme-pkg 1.5)']\n"


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ("'one.so'", "tesserack_libraries gave 'one.so'; expected a list of paths"),
        ("['/nowhere/lib.so']", "library: cannot open /nowhere/lib.so"),
        ("[3]", "TypeError"),
        ("None", "TypeError"),
    ],
)
def test_what_is_wrong_names_the_plugin(site, paths, reason):
    site.package("acme-pkg", PLUGIN.format(paths=paths), plugin="acme")
    out = site.run("try:\n    ts.ops.acme.twice\nexcept RuntimeError as error:\n    print(error)")
    assert "plugins: acme (acme-pkg 1.5) cannot be used: " in out and reason in out

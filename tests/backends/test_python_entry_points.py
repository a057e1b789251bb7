"""Backends in Python, streams and operators of plugins, as packages bring them."""

from __future__ import annotations

import pytest

BACKEND = """
    from tesserack.backends import Backend

    class Acme(Backend):
        name, vendor, version = "acme", "com.example.acme", "3"

        def probe(self):
            return 2

        def alloc(self, device, nbytes, stream):
            return bytearray(nbytes)

        def copy_from_host(self, device, dst, at, src, stream):
            dst[at : at + len(src)] = bytes(src)

        def copy_to_host(self, device, dst, src, at, stream):
            dst[:] = src[at : at + len(dst)]

        def copy_within(self, device, dst, to, src, at, nbytes, stream):
            dst[to : to + nbytes] = src[at : at + nbytes]
"""

FORMS = {
    "an instance": "library = Acme()",
    "a class": "library = Acme",
    "a function": "def library(): return Acme()",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_entry_point_may_be(site, form):
    site.package("acme-pkg", BACKEND + "    " + FORMS[form], backend="acme")
    out = site.run(
        """
        backends.set_fallback("allow")
        print(backends.get("acme", load=False).status, ts.ones(2).acme(1).device)
        info = backends.get("acme")
        print(info.status, info.vendor, info.version, info.package, info.device_count, info.source)
        print((ts.arange(3.0).acme() + 1).tolist(), ts.acme.device_count())
        """
    )
    assert out.splitlines() == [
        "not loaded acme:1",
        "ready com.example.acme 3 acme-pkg 2 acme-pkg 1.5 (acme_pkg:library)",
        "[1.0, 2.0, 3.0] 2",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("name = 'other'", "calls itself 'other', but is announced as 'acme'"),
        ("vendor = ''", "ValueError: Backend: expected"),
        ("def probe(self): return 0, 'no card'", "has no device: no card"),
        ("def probe(self): raise OSError('bus')", "OSError: bus"),
    ],
)
def test_faulty_python_backends(site, change, expected):
    body = BACKEND + f"\n    class Faulty(Acme):\n        {change}\n\n    library = Faulty"
    site.package("acme-pkg", body, backend="acme")
    out = site.run("print(backends.why_unavailable('acme')); print(ts.ones(1).device)")
    assert "acme-pkg 1.5" in out and expected in out and out.endswith("cpu\n")


def test_a_device_that_appears(site):
    body = BACKEND + "\n    class Late(Acme):\n        def probe(self):\n            import os\n"
    body += "            return int('ACME' in os.environ), 'no card'\n\n    library = Late"
    site.package("acme-pkg", body, backend="acme")
    out = site.run(
        """
        import os
        print(ts.acme.is_available())
        os.environ["ACME"] = "1"
        backends.reload("acme")
        print(ts.acme.is_available(), ts.empty(1, device="acme").device)
        """
    )
    assert out.splitlines() == ["False", "True acme:0"]


def test_streams_of_a_backends_module(acme):
    out = acme.run(
        """
        s = ts.acme.Stream(1)
        print(s.device, isinstance(s, ts.acme.Stream), isinstance(s, ts.cpu.Stream), isinstance(3, ts.acme.Stream))
        print(ts.acme.Event(enable_timing=True).device, ts.acme.Event(device=1).device)
        with ts.acme.stream(s):
            print(ts.acme.current_stream(1) == s, ts.acme.current_stream().device)
        print(ts.acme.current_stream(1) == ts.acme.default_stream(1))
        try:
            ts.acme.Stream("cpu")
        except ValueError as error:
            print(error)
        """
    )
    assert out.splitlines() == [
        "acme:1 True False False",
        "acme:0 acme:1",
        "True acme:0",
        "True",
        "acme: expected a acme device or an index, got 'cpu'",
    ]


def test_operators_of_a_plugin(site):
    """Its module is imported when the namespace of its name is first used."""
    body = """
        from tesserack import Tensor

        print("imported")

        def tesserack_operators(library):
            @library.custom_op("acmeops::twice", mutates_args=())
            def twice(x: Tensor) -> Tensor:
                return x * 2
    """
    site.package("acme-pkg", body, plugin="acmeops")
    out = site.run("x = ts.ones(2); print(ts.ops.acmeops.twice(x).tolist())")
    assert out.splitlines() == ["imported", "[2.0, 2.0]"]


IMPORTS_EACH_OTHER = """
    import threading

    both = threading.Barrier(2, timeout=20)
    outcome = []

    def first():
        try:
            outcome.append(str(ts.device("acme")))
        except RuntimeError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=first, daemon=True)
    import heavy_state
    heavy_state.both = both
    thread.start()
    import heavy  # names a device while the other thread, loading the backend, waits for this module
    thread.join(20)
    assert not thread.is_alive(), "deadlock"
    print(outcome[0], heavy.seen)
"""


@pytest.mark.parametrize("other", ["brass", "acme"])
def test_a_module_may_name_a_device_while_a_backend_waits_for_it(site, library, other):
    site.native("brass-pkg", library("brass"), "brass")
    own = site.native("acme-pkg", library("acme"), "acme")
    (site.folder / "acme_pkg.py").write_text(
        f"import heavy_state\nheavy_state.both.wait()\nimport heavy\nlibrary = {str(own)!r}\n"
    )
    (site.folder / "heavy_state.py").write_text("both = None\n")
    (site.folder / "heavy.py").write_text(
        "import time, heavy_state, tesserack as ts\n"
        "heavy_state.both.wait()\n"
        "time.sleep(0.5)\n"
        "try:\n"
        f"    seen = str(ts.device({other!r}))\n"
        "except RuntimeError as error:\n"
        "    seen = str(error)\n"
    )
    out = site.run(IMPORTS_EACH_OTHER)
    assert out.startswith("acme:0 ")
    assert "brass:0" in out or (other == "acme" and ("acme:0 acme:0" in out or "while it is being loaded" in out))
    if other == "acme":  # what came too early is not held against the backend
        again = IMPORTS_EACH_OTHER + "\n    print(ts.device('acme'), backends.failures())\n"
        assert site.run(again).endswith("acme:0 {}\n")

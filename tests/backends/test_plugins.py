"""Plugins of the group tesserack.plugins: hooks, their validation, and what one failing plugin does to others."""

from __future__ import annotations

import json

import pytest

HOOKS = """
    from tesserack.plugins import Finding, hookimpl

    def tesserack_dispatch_keys(dispatch):
        print("keys with", dispatch.__name__)

    def tesserack_autocast():
        return {"lower": ["matmul"], "float32": ["exp"]}

    def tesserack_communicators():
        return {"loop": lambda: "a loop"}

    def tesserack_trackers():
        return {"wall": lambda **given: given}

    def tesserack_compile():
        return {"plain": lambda graph, inputs: graph}

    @hookimpl(specname="tesserack_doctor")
    def check_the_weather():
        yield Finding("warning", "weather", "it rains", "take an umbrella")

    def tesserack_commands(subparsers):
        parser = subparsers.add_parser("hello", help="say hello")
        parser.add_argument("name")
        parser.set_defaults(run=lambda arguments: print("hello", arguments.name))

    def helper():
        return "no hook"
"""


@pytest.fixture
def plugged(site):
    """An environment with one plugin that implements every hook but operators."""
    site.package("hooks-pkg", HOOKS, plugin="everything")
    return site


def test_hooks_are_collected(plugged):
    out = plugged.run(
        """
        import sys
        print(ts.plugins.installed(), ts.plugins.loaded(), "hooks_pkg" in sys.modules, "pluggy" in sys.modules)
        print(ts.plugins.autocast_lists(), ts.plugins.communicators(), ts.plugins.compilers())
        ts.plugins.load()
        ts.plugins.load("everything")
        print(ts.plugins.loaded(), ts.plugins.failures())
        print(ts.plugins.autocast_lists())
        print(ts.plugins.communicators()["loop"](), ts.plugins.compilers()["plain"]("g", ()))
        from tesserack.utils.tracking import trackers
        print(ts.plugins.trackers()["wall"](name="x"), trackers())
        """
    )
    assert out.splitlines() == [
        "{'everything': 'hooks-pkg 1.5'} [] False False",
        "{'lower': [], 'float32': [], 'promote': []} {} {}",
        "keys with tesserack.library.dispatch",
        "['everything (hooks-pkg 1.5)'] {}",
        "{'lower': ['matmul'], 'float32': ['exp'], 'promote': []}",
        "a loop g",
        "{'name': 'x'} ['json', 'mlflow', 'tensorboard', 'wall', 'wandb']",
    ]


FAULTS = {
    "unknown hook": (
        "def tesserack_docter(): pass",
        "unknown hook 'tesserack_docter'; did you mean 'tesserack_doctor'?",
    ),
    "wrong argument": ("def tesserack_doctor(patient): pass", "patient"),
    "fails on import": ("import nosuch_module", "ModuleNotFoundError: No module named 'nosuch_module'"),
    "leaves": ("import sys; sys.exit(1)", "SystemExit"),
    "fails to register": ("def tesserack_dispatch_keys(): 1 / 0", "ZeroDivisionError"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faulty_plugins_are_named_and_do_no_harm(plugged, case):
    body, expected = FAULTS[case]
    plugged.package("faulty-pkg", body, plugin="faulty")
    out = plugged.run(
        """
        for _ in range(2):
            try:
                ts.plugins.load()
            except ts.plugins.PluginError as error:
                print(error, "|", type(error.__cause__).__name__)
        print(ts.plugins.loaded(), list(ts.plugins.failures()))
        ts.plugins.load("everything")
        try:
            ts.plugins.load("faulty")
        except ts.plugins.PluginError:
            print("raised")
        """
    )
    lines = out.splitlines()
    assert lines[0] == "keys with tesserack.library.dispatch" and lines[1] == lines[2]
    assert lines[1].startswith("plugins: faulty (faulty-pkg 1.5) cannot be used: ") and expected in lines[1]
    assert lines[3:] == ["['everything (hooks-pkg 1.5)'] ['faulty (faulty-pkg 1.5)']", "raised"]


CONTRIBUTIONS = {
    "two of a name": ("def tesserack_communicators(): return {'loop': print}", "communicators", "'loop' is given by"),
    "not callable": ("def tesserack_compile(): return {'x': 3}", "compilers", "expected callables by name"),
    "no dictionary": ("def tesserack_compile(): return [print]", "compilers", "expected callables by name"),
    "unknown category": ("def tesserack_autocast(): return {'half': []}", "autocast_lists", "lower, float32, promote"),
    "contradiction": ("def tesserack_autocast(): return {'lower': ['exp']}", "autocast_lists", "puts 'exp' under"),
    "raises": ("def tesserack_autocast(): 1 / 0", "autocast_lists", "failed in tesserack_autocast: ZeroDivisionError"),
}


@pytest.mark.parametrize("case", CONTRIBUTIONS)
def test_contributions_are_checked(plugged, case):
    body, function, expected = CONTRIBUTIONS[case]
    plugged.package("faulty-pkg", body, plugin="faulty")
    out = plugged.run(
        f"""
        ts.plugins.load()
        try:
            ts.plugins.{function}()
        except ts.plugins.PluginError as error:
            print(error)
        """
    )
    assert "faulty (faulty-pkg 1.5)" in out and expected in out


def test_a_namespace_of_operators_loads_its_plugin(plugged):
    """By its name, once; looking at anything else loads nothing."""
    out = plugged.run(
        """
        print(hasattr(ts.ops, "nothing"), hasattr(ts, "everything"), callable(ts.ops.relu), ts.plugins.loaded())
        for _ in range(2):
            print(hasattr(ts.ops, "everything"), ts.plugins.loaded())
        """
    )
    assert out.splitlines() == [
        "False False True []",
        "keys with tesserack.library.dispatch",
        *["False ['everything (hooks-pkg 1.5)']"] * 2,
    ]


def test_unknown_plugins(site):
    out = site.run(
        """
        try:
            ts.plugins.load("nosuch")
        except ts.plugins.PluginError as error:
            print(error)
        """
    )
    assert out == "plugins: no plugin named 'nosuch' is installed (installed: none)\n"


def test_commands_and_checks_of_plugins(plugged):
    plugged.package("faulty-pkg", "def tesserack_command(): pass", plugin="faulty")
    done = plugged.cli("hello", "world")
    assert done.returncode == 0 and done.stdout.endswith("hello world\n")
    assert "tesserack: warning: plugins: faulty (faulty-pkg 1.5) cannot be used" in done.stderr
    assert "say hello" in plugged.cli("--help").stdout
    built_in = plugged.cli("ops", "--required")
    assert built_in.stderr == "" and "keys with" not in built_in.stdout  # loads no plugin

    done = plugged.cli("doctor", "--json")
    findings = json.loads(done.stdout.partition("\n")[2])["findings"]
    assert {"level": "warning", "subject": "weather", "message": "it rains", "cure": "take an umbrella"} in findings
    assert any(f["level"] == "error" and "faulty-pkg 1.5" in f["message"] for f in findings) and done.returncode == 1


def test_findings_have_a_level(site):
    body = "def tesserack_doctor(): return ['all is well']"
    site.package("odd-pkg", body, plugin="odd")
    assert "odd (odd-pkg 1.5) gave 'all is well', no Finding" in site.cli("doctor").stdout
    out = site.run(
        """
        try:
            ts.plugins.Finding("terrible", "x", "y")
        except ValueError as error:
            print(error)
        """
    )
    assert "ok, info, warning, error" in out

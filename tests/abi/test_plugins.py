"""Plugins built against another header than the core's, and tables that are not what they should be."""

from __future__ import annotations

import subprocess

import pytest

COMPUTE = """
ts.backends.set_fallback("allow")
x = ts.tensor([1.0, 2.0, 3.0]).to("elder")
print((x + x).tolist(), (x * 2).tolist(), "pointwise" in ts.backends.fallbacks(), x[::-1].exp().shape)
print(ts.backends.properties("elder")["name"])
"""
COMPUTED = "[2.0, 4.0, 6.0] [2.0, 4.0, 6.0] False"


@pytest.mark.parametrize("variant", ["as it was", "SHORT_TABLE", "LONG_TABLE"])
def test_a_released_plugin_works(variant, build, load):
    """Its table may be shorter than the core's, or longer: what is missing counts as NULL, what is new is not read."""
    out = load(build("plugin.c", *([] if " " in variant else [f"-D{variant}"])), COMPUTE)
    assert out.startswith(f"loaded\n{COMPUTED}") and out.endswith("Elder\n")


def test_a_plugin_of_a_later_header_works(build, load):
    """It needs nothing of what was appended, so this core will do."""
    assert load(build("plugin.c", header="grown"), COMPUTE).startswith(f"loaded\n{COMPUTED}")


def test_a_released_plugin_works_with_a_later_core(build):
    """A core whose every struct has grown: strides between tensors of a call, sizes to fill, slots beyond the end."""
    core = build("future_core.c", header="grown")
    for options in ((), ("-DSHORT_TABLE",)):
        done = subprocess.run([core, build("plugin.c", *options)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "11 22 33\n"), done.stderr


REFUSED = {
    "-DMAJOR=2": "was built for ABI 2.x, this core speaks 1.1; install a matching version",
    "-DMAJOR=0": "was built for ABI 0.x, this core speaks 1.1",
    "-DMAJOR=7 -DTINY_TABLE": "was built for ABI 7.x, this core speaks 1.1",
    "-DMINOR_NEEDED=999": "needs ABI 1.999 or later, this core speaks 1.1; upgrade tesserack",
    "-DTINY_TABLE": "too small to hold the required slots",
    "-DNO_SIZE": "gave a table of 0 bytes, too small to say its version",
    "-DNO_TABLE": "gave no table",
    "-DNAME=NULL": "has no name",
    '-DNAME=""': "has no name",
    '-DNAME="my:device"': "calls itself 'my:device'; a device's name is of lower-case letters",
    '-DNAME="Elder"': "calls itself 'Elder'",
    '-DNAME="0elder"': "calls itself '0elder'",
    '-DNAME="\\xc3\\xa9"': "calls itself",
    '-DNAME="meta"': "the name 'meta' is built in",
    '-DREFUSES="elder: no license"': "elder: no license",
    '-DREFUSES=""': "failed with status 2",
    "-Dtesserack_backend=other": "does not export tesserack_backend",
}


@pytest.mark.parametrize("options", REFUSED)
def test_refused_with_a_reason(options, build, load):
    first, *more = options.split(" -D")
    out = load(build("plugin.c", first, *(f"-D{option}" for option in more)))
    assert out.startswith("error backend: ") and REFUSED[options] in out
    assert "elder-pkg 1.0" in out or "-plugin" in out  # the package, or the file


SLOTS = ("probe", "properties", "alloc", "free", "synchronize", "get_kernel")
COPIES = ("copy_from_host", "copy_to_host", "copy_within")


@pytest.mark.parametrize("slot", [*SLOTS, *COPIES])
def test_required_slots_are_named(slot, build, load):
    out = load(build("plugin.c", f"-DEMPTY_SLOT={slot}"))
    assert f"leaves the required slot {slot} empty" in out and "'elder' from elder-pkg 1.0" in out


def test_a_name_is_taken_once(build, load):
    """The second is refused, the first goes on working."""
    second = str(build("plugin.c", "-DLONG_TABLE"))
    again = f"""
try:
    ts._native._load_backend({second!r}, "", "other-pkg 2.0")
except RuntimeError as error:
    print(error)
"""
    out = load(build("plugin.c"), again + COMPUTE)
    assert "the name 'elder' is claimed by both elder-pkg 1.0" in out and "other-pkg 2.0" in out and COMPUTED in out

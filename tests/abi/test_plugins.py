"""Plugins built against another header than the core's, and tables that are not what they should be."""

from __future__ import annotations

import re
import subprocess

import abi_headers as headers
import pytest
import tesserack as ts

MAJOR, MINOR = ts._native._abi_version()
SPEAKS = f"this core speaks {MAJOR}.{MINOR}; install a matching version of the package"
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
    header = "today" if variant == "LONG_TABLE" else "released"  # what is longer ends beyond what this core knows
    out = load(build("plugin.c", *([] if " " in variant else [f"-D{variant}"]), header=header), COMPUTE)
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


def get_kernel_of(header: str) -> tuple[str, ...]:
    """The options for a header's form of the slot, which changed once."""
    slot = next(f for f in headers.structs(headers.kept()[header])["ts_backend"] if "(*get_kernel)" in f)
    return () if "device" in slot else ("-DWITHOUT_DEVICE",)


@pytest.mark.parametrize("header", headers.kept())
def test_every_header_that_landed_works_or_is_refused(header, build, load):
    """One of another major before any of its functions runs: not even the entry point's form is known."""
    major, _ = headers.version(headers.kept()[header])
    library = build("plugin.c", "-DTELLS", *get_kernel_of(header), header=header)
    out = load(library, COMPUTE if major == MAJOR else "")
    if major == MAJOR:
        assert out.startswith(f"the entry point ran\nloaded\n{COMPUTED}")
    else:
        assert out.startswith("error backend: ") and f"was built for ABI {major}.x, {SPEAKS}" in out
        assert "the entry point ran" not in out


def test_a_header_of_a_later_major_is_refused(build, load):
    out = load(build("plugin.c", "-DTELLS", header="later major"))
    assert f"was built for ABI {MAJOR + 1}.0, {SPEAKS}" in out or f"for ABI {MAJOR + 1}.{MINOR}, {SPEAKS}" in out
    assert "the entry point ran" not in out


def test_the_version_of_another_library_counts_for_nothing(build, load):
    """A library of an older header that is linked to one of today's: what is asked is found in that one."""
    today = build("plugin.c")
    out = load(build("plugin.c", "-DTELLS", f"-Wl,--no-as-needed,{today}", header="1.1-e.h"))
    assert f"was built for ABI 1.x, {SPEAKS}" in out and "the entry point ran" not in out


OF_OPERATORS = [h for h, text in headers.kept().items() if "ts_plugin" in headers.structs(text)]


@pytest.mark.parametrize("header", [*OF_OPERATORS, "released", "later major"])
def test_libraries_of_operators_are_asked_the_same(header, build):
    library = str(build("operators.c", header=header))
    told = headers.kept().get(header)
    if header == "released" or (told and headers.version(told)[0] == MAJOR):
        with pytest.raises(RuntimeError, match="the entry point ran"):
            ts.dispatch.load_library(library)
        return
    with pytest.raises(RuntimeError, match=rf"was built for ABI \d+\.\w+, {re.escape(SPEAKS)}"):
        ts.dispatch.load_library(library)


REFUSED = {
    f"-DMAJOR={MAJOR + 1}": f"was built for ABI {MAJOR + 1}.x, {SPEAKS}",
    "-DMAJOR=0": f"was built for ABI 0.x, {SPEAKS}",
    "-DMAJOR=7 -DTINY_TABLE": f"was built for ABI 7.x, {SPEAKS}",
    "-DMINOR_NEEDED=999": f"needs ABI {MAJOR}.999 or later, this core speaks {MAJOR}.{MINOR}; upgrade tesserack",
    "-Dtesserack_abi=hidden": "exports tesserack_abi, which abi.h defines: its link must not hide it",
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


# Of a table, as it is loaded.
GIVEN = {
    "t->flags = 64": "tells the flags 64; expected TS_B_OWN_ALLOCATOR or none",
    "t->stream_create = (void*)probe": "fills ts_backend.stream_create but not stream_destroy; both go together",
    "t->stream_destroy = (void*)probe": "fills ts_backend.stream_destroy but not stream_create; both go together",
    "t->event_create = (void*)probe": "fills ts_backend.event_create but not event_destroy; both go together",
    "t->host_alloc = (void*)probe": "fills ts_backend.host_alloc but not host_free; both go together",
}
# Of a device, as it is first used.
TOLD = {
    "memset(mine.name, 65, sizeof mine.name)": "a name without an end; the 128 bytes of ts_properties.name include a",
    "mine.flags = 1u << 20": "the flags 1048576; expected some of TS_P_*",
    "mine.dtypes |= 1ull << 60": "expected bits of the ",
    "mine.flags = TS_P_HOST_MEMORY": "TS_P_HOST_MEMORY, but leaves the slot host_pointer empty",
    "mine.dtypes |= 1u << TS_COMPLEX64": "complex dtypes, which its kernel copy_cast does not take",
}


@pytest.mark.parametrize("given", GIVEN)
def test_tables_that_cannot_be_are_refused(given, build, load):
    out = load(build("plugin.c", f"-DGIVE={given}"))
    assert out.startswith("error backend: 'elder' from elder-pkg 1.0 ") and GIVEN[given] in out


@pytest.mark.parametrize("told", TOLD)
def test_devices_that_cannot_be_are_refused(told, build, load):
    also = ("-DANY_KERNEL",) if "COMPLEX" in told else ()
    with_use = "try:\n    ts.ones(2, device='elder')\nexcept RuntimeError as error:\n    print('error', error)\n"
    out = load(build("plugin.c", f"-DTELL={told}", *also), with_use)
    assert "error properties: backend 'elder' from elder-pkg 1.0 " in out and TOLD[told] in out


@pytest.mark.parametrize("told", ["out->flags = 64", "out->layouts = 9"])
def test_kernels_that_cannot_be_are_refused(told, build, load):
    program = "try:\n    ts.ones(2, device='elder') + 1\nexcept RuntimeError as error:\n    print('error', error)\n"
    out = load(build("plugin.c", f"-DTELL_OF_KERNEL={told}"), f"ts.backends.set_fallback('allow')\n{program}")
    assert "error get_kernel: backend 'elder' from elder-pkg 1.0 " in out and "gives 'pointwise' the flags" in out


SLOTS = ("probe", "properties", "alloc", "free", "synchronize", "get_kernel")
COPIES = ("copy_from_host", "copy_to_host", "copy_within")


@pytest.mark.parametrize("slot", [*SLOTS, *COPIES])
def test_required_slots_are_named(slot, build, load):
    out = load(build("plugin.c", f"-DEMPTY_SLOT={slot}"))
    assert f"leaves the required slot {slot} empty" in out and "'elder' from elder-pkg 1.0" in out


def test_a_name_is_taken_once(build, load):
    """The second is refused, the first goes on working."""
    second = str(build("plugin.c", "-DLONG_TABLE", header="today"))
    again = f"""
try:
    ts._native._load_backend({second!r}, "", "other-pkg 2.0")
except RuntimeError as error:
    print(error)
"""
    out = load(build("plugin.c"), again + COMPUTE)
    assert "the name 'elder' is claimed by both elder-pkg 1.0" in out and "other-pkg 2.0" in out and COMPUTED in out

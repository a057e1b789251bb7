"""Native libraries whose bytes were damaged: an error for the user, never a crash."""

from __future__ import annotations

import base64
import hashlib
import random
import textwrap

import pytest

USE_ACME = """
    try:
        print(ts.zeros(2, device="acme").device)
    except RuntimeError as error:
        print("error", error, "| cause:", repr(error.__cause__))
"""


def record(site, library, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    text = f"acme_pkg.py,,\n{library.name},sha256={digest},{len(content)}\n"
    (site.folder / "acme_pkg-1.5.dist-info" / "RECORD").write_text(text)


def remembered(site, library):
    """What was written down when the library could be loaded."""
    texts = (file.read_text() for file in (site.folder.parent / "cache" / "tesserack" / "loaded").glob("*"))
    return [text for text in texts if str(library) in text]


def test_what_was_recorded_is_loaded(site, library):
    own = site.native("acme-pkg", library("acme"), "acme")
    record(site, own, own.read_bytes())
    assert site.run(USE_ACME) == "acme:0\n"
    assert not remembered(site, own)  # no other process had to try


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "it is not the file that was installed"),
        (lambda content: content + b"\0", "bytes, {size} were installed"),
        (lambda content: content[: len(content) // 2], "bytes, {size} were installed"),
        (lambda content: b"", "it has 0 bytes, {size} were installed"),
    ],
)
def test_what_differs_from_the_record_is_refused(site, library, damage, message):
    own = site.native("acme-pkg", library("acme"), "acme")
    content = own.read_bytes()
    record(site, own, content)
    own.write_bytes(damage(content))
    out = site.run(USE_ACME)
    assert out.startswith("error device: the backend 'acme' from acme-pkg 1.5") and str(own) in out
    assert message.format(size=len(content)) in out and "try reinstalling acme-pkg" in out


@pytest.mark.parametrize("row", ["", "x", "sha256=,", ",", "md99=abc,5", "sha256=abc,five", "sha256"])
def test_a_record_that_says_nothing(site, library, row):
    own = site.native("acme-pkg", library("acme"), "acme")
    (site.folder / "acme_pkg-1.5.dist-info" / "RECORD").write_text(f"{own.name},{row}\n\0")
    assert site.run(USE_ACME) == "acme:0\n"


@pytest.mark.parametrize("where", ["CRASH_ON_OPEN", "CRASH_ON_ENTRY", "CRASH_ON_PROBE"])
def test_a_library_that_dies_is_refused(site, library, where):
    site.native("acme-pkg", library("acme", f"-D{where}"), "acme")
    out = site.run(USE_ACME)
    assert "a process that tried to load it died of SIGSEGV" in out and "try reinstalling acme-pkg" in out


def test_a_library_that_does_not_come_back_is_refused(site, library):
    site.native("acme-pkg", library("acme", "-DHANG_ON_OPEN"), "acme")
    short = "from tesserack.backends import _integrity\n_integrity._TIMEOUT = 3.0\n"
    out = site.run(short + textwrap.dedent(USE_ACME))
    assert "a process that tried to load it had not ended after 3 s" in out and "try reinstalling acme-pkg" in out


def test_a_library_is_tried_once_for_each_change(site, library):
    own = site.native("acme-pkg", library("acme"), "acme")
    assert site.run(USE_ACME) == "acme:0\n"
    (first,) = remembered(site, own)
    assert site.run(USE_ACME) == "acme:0\n" and remembered(site, own) == [first]
    own.touch()
    assert site.run(USE_ACME) == "acme:0\n" and remembered(site, own) not in ([], [first])


def test_nowhere_to_remember(site, library):
    site.native("acme-pkg", library("acme"), "acme")
    assert site.run(USE_ACME, XDG_CACHE_HOME="/proc/nowhere") == "acme:0\n"


def test_bytes_damaged_anywhere(site, library):
    """Whatever 8 bytes are overwritten: the library works, or the user reads why not."""
    own = site.native("acme-pkg", library("acme"), "acme")
    whole, chance = own.read_bytes(), random.Random(0)
    for _ in range(24):
        at = chance.randrange(len(whole) - 8)
        own.write_bytes(whole[:at] + chance.randbytes(8) + whole[at + 8 :])
        done = site.run("""
            try:
                print(backends.capabilities("acme")["name"])
            except RuntimeError as error:
                print("error", error)
        """)
        assert done.startswith("acme") or "try reinstalling acme-pkg" in done or "'acme'" in done, (at, done)

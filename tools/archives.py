"""Wheels and source distributions whose bytes depend on what is in them alone."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import io
import struct
import tarfile
import time
import zipfile
import zlib
from pathlib import Path

__all__ = ["add_file", "normalize", "retag"]


def normalize(archive: Path, epoch: int) -> Path:
    """Write an archive again: members by name, all of one time, nobody's, with modes of two kinds."""
    if archive.suffix == ".whl":
        _write_wheel(archive, _read_wheel(archive), epoch)
    else:
        _write_tar(archive, epoch)
    return archive


def retag(wheel: Path, platform: str, python: str | None = None) -> Path:
    """The wheel for another platform, and for another Python where one is named (``cp314``); the old file is gone."""
    members = _read_wheel(wheel)
    stem, *old = wheel.stem.rsplit("-", 3)
    fresh = [python or old[0], python or old[1], platform]
    (info,) = (name for name in members if name.endswith(".dist-info/WHEEL"))
    mode, text = members[info]
    members[info] = (mode, text.replace(f"Tag: {'-'.join(old)}\n".encode(), f"Tag: {'-'.join(fresh)}\n".encode()))
    target = wheel.with_name(f"{'-'.join([stem, *fresh])}.whl")
    _write_wheel(target, members, 315532800)
    if target != wheel:
        wheel.unlink()
    return target


def add_file(wheel: Path, name: str, data: bytes) -> None:
    """Put one more file into a wheel."""
    members = _read_wheel(wheel)
    members[name] = (0o755, data)
    _write_wheel(wheel, members, 315532800)


def _read_wheel(wheel: Path) -> dict[str, tuple[int, bytes]]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            item.filename: (0o755 if item.external_attr >> 16 & 0o111 else 0o644, archive.read(item))
            for item in archive.infolist()
            if not item.is_dir()
        }


def _write_wheel(wheel: Path, members: dict[str, tuple[int, bytes]], epoch: int) -> None:
    (record,) = (name for name in members if name.endswith(".dist-info/RECORD"))
    names = sorted(set(members) - {record}, key=lambda name: (".dist-info/" in name, name))
    lines = [f"{name},sha256={_digest(members[name][1])},{len(members[name][1])}" for name in names]
    members = {**members, record: (0o644, "\n".join([*lines, f"{record},,", ""]).encode())}
    _write_zip(wheel, [(name, *members[name]) for name in [*names, record]], epoch)


def _write_zip(path: Path, items: list[tuple[str, int, bytes]], epoch: int) -> None:
    """Names, modes and data as a zip file: by hand, since zipfile takes no streams that are deflated already."""
    year, *rest = time.gmtime(max(epoch, 315532800))[:6]  # zip begins in 1980
    month, day, hour, minute, second = rest
    stamp = (hour << 11 | minute << 5 | second >> 1, (year - 1980) << 9 | month << 5 | day)
    body, directory = bytearray(), bytearray()
    for name, mode, data in items:
        packed, encoded, at = _deflated(data), name.encode(), len(body)
        sizes = (zlib.crc32(data), len(packed), len(data), len(encoded), 0)
        common = (20, 0 if name.isascii() else 0x800, zipfile.ZIP_DEFLATED, *stamp, *sizes)
        body += struct.pack("<4s5H3I2H", b"PK\3\4", *common) + encoded + packed
        attributes = (0, 0, 0, (0o100000 | mode) << 16, at)
        directory += struct.pack("<4sH5H3I2H3H2I", b"PK\1\2", 3 << 8 | 20, *common, *attributes) + encoded
    count = len(items)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory), len(body), 0)
    path.write_bytes(body + directory + end)


@functools.cache
def _deflated(data: bytes) -> bytes:
    """By zopfli, a twenty-fifth smaller and as quick to read, where it is installed; once for all archives of a run."""
    try:
        import zopfli.zlib
    except ImportError:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush()
    return bytes(zopfli.zlib.compress(data)[2:-4])  # without zlib's header and checksum


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _write_tar(archive: Path, epoch: int) -> None:
    with tarfile.open(archive) as old:
        members = sorted(
            ((item, old.extractfile(item).read()) for item in old.getmembers() if item.isfile()),  # type: ignore[union-attr]
            key=lambda pair: pair[0].name,
        )
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as fresh:
        for item, data in members:
            clean = tarfile.TarInfo(item.name)
            clean.size, clean.mtime, clean.mode = len(data), epoch, 0o755 if item.mode & 0o111 else 0o644
            fresh.addfile(clean, io.BytesIO(data))
    with open(archive, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as zipped:
        zipped.write(packed.getvalue())

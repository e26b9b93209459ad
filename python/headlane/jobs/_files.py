"""Writing files so that what is there is whole, and stays there."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any


def write_at(file: int, data: bytes | memoryview, offset: int) -> None:
    """All of the data; OSError if the disk is full."""
    view = memoryview(data).cast("B")
    while len(view):
        count = os.pwrite(file, view, offset)
        if count == 0:
            raise OSError("nothing could be written")
        view = view[count:]
        offset += count


def same_file(a: str, b: str) -> bool:
    """Whether two names, of files that exist or not, are of one file."""
    both = os.path.exists(a) and os.path.exists(b)
    return os.path.samefile(a, b) if both else os.path.realpath(a) == os.path.realpath(b)


def sync_folder(folder: Path) -> None:
    """Names in a folder stay, too. Not every file system can, or needs to, sync a folder."""
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(file)
    except OSError:
        pass
    finally:
        os.close(file)


def draft_of(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def write_whole(path: Path, data: bytes) -> None:
    """A file that has all of the data or does not exist."""
    draft = draft_of(path)
    with open(draft, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    sync_folder(path.parent)


def with_checksum(text: str) -> bytes:
    """A line with a CRC-32 at its end."""
    data = text.encode()
    return data + b" %08x\n" % zlib.crc32(data)


def without_checksum(line: bytes) -> str | None:
    """The text of such a line; None if it is not what was written."""
    data, _, check = line.rstrip(b"\n").rpartition(b" ")
    return data.decode("utf-8", "replace") if check == b"%08x" % zlib.crc32(data) else None


def write_json(path: Path, value: dict[str, Any]) -> None:
    write_whole(path, with_checksum(json.dumps(value, sort_keys=True)))


def read_json(path: Path) -> dict[str, Any]:
    """RuntimeError if the file is damaged."""
    text = without_checksum(path.read_bytes())
    if text is None:
        raise RuntimeError(f"{path} is damaged; --overwrite begins anew")
    return json.loads(text)

"""Of which kind a file is: by its name, and where that says nothing by its first bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

KINDS = {
    "parquet": (".parquet", ".pq"),
    "arrow": (".feather", ".arrow", ".ipc"),
    "json": (".json", ".jsonl", ".ndjson"),
    "text": (".csv", ".tsv", ".tab", ".txt", ".dat"),
}
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_MAGIC = ((b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"FEA1", "arrow"))
_PACKED = {
    "gzip": rb"\x1f\x8b\x08",
    "bz2": rb"BZh[1-9]1AY&SY",
    "zstd": rb"\x28\xb5\x2f\xfd",
    "lz4": rb"\x04\x22\x4d\x18",
}
_HEAD_BYTES = 1 << 12


def file_kind(file: Path) -> str:
    """ "parquet", "arrow", "json" or "text"; JSON without a telling name opens with a bracket."""
    named = Path(file.stem) if file.suffix.lower() in COMPRESSED else file
    for kind, suffixes in KINDS.items():
        if named.suffix.lower() in suffixes:
            return kind
    with open_stream(file) as stream:
        head = stream.read(_HEAD_BYTES)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    return "json" if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[") else "text"


def open_stream(file: Path) -> pa.NativeFile:
    """The file's bytes, decompressed if they are compressed, whatever its name."""
    with file.open("rb") as stream:
        head = stream.read(16)
    packed = next((name for name, magic in _PACKED.items() if re.match(magic, head)), None)
    return pa.input_stream(str(file), compression=packed, buffer_size=1 << 16)

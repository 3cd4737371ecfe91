"""Tables and arrays, written in the format of their file name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from chronospike.errors import InputError, check_choice
from chronospike.files import atomic_file, check_file
from chronospike.streams import is_stream

TABLES = ("csv", "parquet", "jsonl")
ARRAYS = ("npy", *TABLES)
_ROWS = 1 << 16


def output_format(output: Path, asked: str | None, known: Sequence[str]) -> str:
    """The format of an output file, from its suffix; that of a stream is CSV unless another is asked for.

    Call it before long work: it refuses a name that tells no format, and a place that cannot be written to.

    Args:
        asked: the user's choice, which must not contradict the suffix.
        known: the formats that fit what is written.
    """
    if asked is not None:
        check_choice("--format", asked, known)
    check_file(output)
    suffix = output.suffix.lower().removeprefix(".")
    if suffix in ARRAYS and suffix != (asked or suffix):
        raise InputError(f"{output}: --format {asked} contradicts the extension .{suffix}. Leave out one of them")
    if suffix in known:
        return suffix
    if suffix == "npy":
        raise InputError(f"{output}: a .npy file holds numbers only, not ids and classes. Choose {_listed(known)}")
    if asked is None and not is_stream(output):
        raise InputError(f"{output}: the extension sets the format. Choose {_listed(known)}")
    return asked or "csv"


def write_table(path: Path, table: pa.Table, kind: str) -> None:
    """Write a table as "csv", "parquet" or "jsonl" (an object per row), all or nothing."""
    with atomic_file(path) as partial:
        if kind == "csv":
            pyarrow.csv.write_csv(table, partial)
        elif kind == "parquet":
            pyarrow.parquet.write_table(table, partial)
        else:
            with partial.open("w", encoding="utf-8") as file:
                for batch in table.to_batches(max_chunksize=_ROWS):
                    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write a `.npy` file, all or nothing; by plain writes, since `np.save` can miss that the disk is full."""
    header = np.lib.format.header_data_from_array_1_0(np.ascontiguousarray(array))
    with atomic_file(path) as partial, partial.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(np.ascontiguousarray(array).data)


def _listed(known: Sequence[str]) -> str:
    *most, last = (f".{kind}" for kind in known)
    return f"{', '.join(most)} or {last}"

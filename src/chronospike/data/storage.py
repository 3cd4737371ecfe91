"""A graph on disk: a folder of `.npy` files and a `meta.json`, opened by memory map.

meta.json             format, version, counts, a checksum per array, how it was made
history_*.npy         indptr, step_offsets, neighbours
snapshot_*.npy        the same
ids.npy               or id_bytes.npy and id_offsets.npy for text ids
step_start.npy, step_end.npy, labels.npy, features.npy
events_*.npy          source, target, time, step_offsets
features/NAME/        feature sets made later (see chronospike.data.feature_store)
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from chronospike._version import __version__
from chronospike.data.attributes import Column, columns_from_json
from chronospike.data.csr import TimeSlicedCSR
from chronospike.data.events import EventLog
from chronospike.data.feature_store import RUN, list_features, open_features
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.meta import GraphMeta, check_meta
from chronospike.errors import GraphError, InputError, StorageError
from chronospike.files import BAD_ARRAY, atomic_folder, read_json, require_readable, write_json

FORMAT = "chronospike-graph"
VERSION = 1
_STRUCTURE = ("history_", "snapshot_")
_CSR_PARTS = ("indptr", "step_offsets", "neighbours")
_EVENT_PARTS = ("source", "target", "time", "step_offsets")
# Larger files are only checked for size on opening; `chronospike data validate` reads them whole.
_VERIFY_BYTES = 2 * 1024**3
_CHUNK_BYTES = 64 * 1024**2
_AGAIN = "Import the graph again"


def save_graph(graph: DynamicGraph, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write `graph` to `folder`, under a temporary name first. Returns the folder."""
    folder = Path(folder)
    with atomic_folder(folder, overwrite=overwrite) as partial:
        arrays = {name: _write_array(partial / f"{name}.npy", array) for name, array in _arrays(graph).items()}
        events = {
            part: _write_array(partial / f"events_{part}.npy", getattr(graph.events, part))
            for part in (() if graph.events is None else _EVENT_PARTS)
        }
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "chronospike": __version__,
            "directed": graph.directed,
            "class_names": list(graph.class_names),
            "columns": [asdict(column) for column in graph.columns],
            "counts": _counts(graph),
            "facts": graph.facts,
            "arrays": arrays,
            # Not among the arrays, so that keys are those of folders without events, which earlier versions wrote.
            "events": events or None,
        }
        write_json(partial / "meta.json", meta)
    return folder


def open_graph(folder: str | Path, *, features: str | None = None, verify: bool | None = None) -> DynamicGraph:
    """Open a graph folder by memory map.

    Compiled code trusts the arrays, so all that it takes for granted is checked, whatever `verify` says.

    Args:
        features: a feature set by name, `"own"` for the attributes imported with the graph, several joined with `+`
            (`"own+deepwalk"`), or `"none"`; by default the graph's own, else the only set there is that is not of
            another run, which may have learned from any label.
        verify: True reads every byte against its checksum, False none, None all but very large arrays.
    """
    folder = Path(folder)
    meta = read_meta(folder)
    arrays = {name: _open_array(folder, name, entry, verify) for name, entry in meta["arrays"].items()}
    entries = meta.get("events")
    events = entries and EventLog(*(_open_array(folder, f"events_{p}", entries[p], verify) for p in _EVENT_PARTS))
    labels, own = arrays.get("labels"), arrays.get("features")
    if labels is not None and labels.dtype != np.int64:
        raise StorageError(f"{folder / 'labels.npy'} holds {labels.dtype}, not class numbers. {_AGAIN}")
    # Folders of earlier versions do not say what the attributes are, and have numbers only.
    columns: tuple[Column, ...] = ()
    if own is not None and meta.get("columns") is not None:
        columns = columns_from_json(meta["columns"], own.shape[-1], str(folder / "meta.json"))
    try:
        graph = DynamicGraph(
            history=TimeSlicedCSR(*(arrays[f"history_{part}"] for part in _CSR_PARTS)),
            snapshot=TimeSlicedCSR(*(arrays[f"snapshot_{part}"] for part in _CSR_PARTS)),
            ids=_open_ids(folder, arrays),
            step_start=arrays["step_start"],
            step_end=arrays["step_end"],
            directed=meta["directed"],
            labels=labels,
            class_names=() if labels is None else tuple(meta["class_names"]),
            features=own,
            columns=columns,
            events=events,
            facts=meta["facts"],
        )
    except KeyError as error:
        raise StorageError(f"{folder}: meta.json has no entry for {error}. {_AGAIN}") from error
    graph = _with_feature_set(graph, folder, features, verify)
    try:
        graph.validate(full=False)
    except GraphError as error:
        raise StorageError(f"{folder} is damaged: {error}. {_AGAIN}") from error
    for name, count in _counts(graph).items():
        if meta["counts"][name] != count:
            said = f"meta.json counts {meta['counts'][name]} {name.replace('_', ' ')}"
            raise StorageError(f"{folder}: {said}, the arrays {count}. {_AGAIN}")
    return graph


def read_meta(folder: Path) -> dict[str, Any]:
    """The `meta.json` of a graph folder, checked for format, version and the types of its entries."""
    path = folder / "meta.json"
    if not path.is_file():
        if folder.is_file():
            raise StorageError(
                f"{folder} is a file, not a graph folder. Make a folder of it with: "
                f"chronospike data import {folder} -o FOLDER"
            )
        what = "is not a graph folder (it has no meta.json)" if folder.is_dir() else "does not exist"
        raise StorageError(f"{folder} {what}. Make one with: chronospike data import FILE -o {folder}")
    meta = read_json(path, _AGAIN)
    if meta.get("format") != FORMAT:
        raise StorageError(f"{path} does not describe a graph of chronospike")
    if meta.get("version") != VERSION:
        raise StorageError(
            f"{folder} has graph format {meta.get('version')}; this chronospike ({__version__}) reads {VERSION}. "
            "Update chronospike or import the graph again"
        )
    check_meta(GraphMeta, meta, path, _AGAIN)
    return meta


def graph_key(folder: str | Path) -> str:
    """A short fingerprint of the structure (not of labels or features), to tie feature sets to their graph."""
    arrays = read_meta(Path(folder))["arrays"]
    return _structure({name: entry["sha256"] for name, entry in arrays.items() if name.startswith(_STRUCTURE)})


def data_key(folder: str | Path) -> str:
    """A short fingerprint of all that a graph folder held when it was written: structure, ids, labels, features."""
    meta = read_meta(Path(folder))
    content = [meta["class_names"], *((name, meta["arrays"][name]["sha256"]) for name in sorted(meta["arrays"]))]
    if meta.get("columns"):
        content.append(meta["columns"])
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def feature_sets(folder: str | Path) -> list[str]:
    """Names of the finished feature sets of a graph folder."""
    return [found.name for found in list_features(Path(folder)) if found.complete]


def structure_key(graph: DynamicGraph) -> str:
    """What `graph_key` says of a folder that holds this graph."""
    arrays = {name: array for name, array in _arrays(graph).items() if name.startswith(_STRUCTURE)}
    return _structure({name: _array_sum(array) for name, array in arrays.items()})


def _structure(sums: dict[str, str]) -> str:
    return hashlib.sha256("".join(sums[name] for name in sorted(sums)).encode()).hexdigest()[:16]


def _with_feature_set(graph: DynamicGraph, folder: Path, name: str | None, verify: bool | None) -> DynamicGraph:
    if name == "none":
        return replace(graph, features=None, columns=())
    if name is None:
        sets = [one.name for one in list_features(folder) if one.complete and one.recipe.get("method") != RUN]
        if graph.features is not None or len(sets) != 1:
            return graph
        name = sets[0]
    if not isinstance(name, str):
        raise InputError(f"features {name!r}: give one name, several joined with +")
    parts = name.split("+")
    if len(set(parts)) < len(parts):
        raise InputError(f"features '{name}' name one set twice")
    if "own" in parts and graph.features is None:
        raise StorageError(f"{folder} has no features of its own. Import it with --features FILE")
    key = graph_key(folder) if parts != ["own"] else None
    made = tuple(open_features(folder, part, graph_key=key, verify=verify) for part in parts if part != "own")
    for part, values in zip((part for part in parts if part != "own"), made, strict=True):
        if values.shape[:2] != (graph.num_steps, graph.num_nodes):
            raise StorageError(
                f"{folder / 'features' / part} has shape {list(values.shape)}, and the graph has {graph.num_steps} "
                f"steps and {graph.num_nodes} nodes. Make it again with --overwrite"
            )
    found = {one.name: {**one.recipe, "edges": one.graph_key} for one in list_features(folder)}
    graph = replace(graph, made_features=made, recipes=tuple(found[part] for part in parts if part != "own"))
    return graph if "own" in parts else replace(graph, features=None, columns=())


def _open_ids(folder: Path, arrays: dict[str, NDArray[Any]]) -> NodeIds:
    """The node ids. Arrow follows offsets without looking, so they are checked before anybody reads an id."""
    wanted = {"ids": "<i8"} if "ids" in arrays else {"id_offsets": "<i8", "id_bytes": "|u1"}
    for name, dtype in wanted.items():
        if arrays[name].ndim != 1 or arrays[name].dtype.str != dtype:
            raise StorageError(f"{folder / name}.npy does not hold node ids. {_AGAIN}")
    try:
        if "id_offsets" in wanted and not (len(arrays["id_offsets"]) and arrays["id_offsets"][0] == 0):
            raise pa.ArrowInvalid("the offsets do not begin with 0")
        ids = NodeIds.from_arrays(arrays)
        ids.values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise StorageError(f"{folder}: the node ids are damaged ({error}). {_AGAIN}") from error
    return ids


def _counts(graph: DynamicGraph) -> dict[str, int]:
    return {
        "nodes": graph.num_nodes,
        "steps": graph.num_steps,
        "snapshot_edges": graph.snapshot_edges,
        "union_edges": graph.union_edges,
    }


def _arrays(graph: DynamicGraph) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for prefix, view in (("history", graph.history), ("snapshot", graph.snapshot)):
        arrays |= {f"{prefix}_{part}": getattr(view, part) for part in _CSR_PARTS}
    arrays |= graph.ids.to_arrays()
    arrays |= {"step_start": graph.step_start, "step_end": graph.step_end}
    if graph.labels is not None:
        arrays["labels"] = np.asarray(graph.labels, dtype=np.int64)
    if graph.features is not None:
        arrays["features"] = graph.features
    return arrays


def _write_array(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    """Write in bounded pieces: plain writes report a full disk, which a memory map would not survive."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, np.lib.format.header_data_from_array_1_0(np.empty((0,), array.dtype)) | {"shape": array.shape}
        )
        return {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": _array_sum(array, file)}


def _array_sum(array: NDArray[Any], file: BinaryIO | None = None) -> str:
    """The checksum of an array's values; they are written to `file` meanwhile, if there is one."""
    digest, rows = hashlib.sha256(), max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        piece = np.ascontiguousarray(array[start : start + rows]).reshape(-1).view(np.uint8).data
        digest.update(piece)
        if file is not None:
            file.write(piece)
    return digest.hexdigest()


def _open_array(folder: Path, name: str, entry: dict[str, Any], verify: bool | None) -> NDArray[Any]:
    path = folder / f"{name}.npy"
    if not path.is_file():
        raise StorageError(f"{path} is missing. {_AGAIN}")
    require_readable(path)
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except BAD_ARRAY as error:
        raise StorageError(f"{path} is damaged ({error}). {_AGAIN}") from error
    if array.dtype.str != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise StorageError(
            f"{path} holds {array.dtype.str} {list(array.shape)}, meta.json says {entry['dtype']} {entry['shape']}. "
            f"{_AGAIN}"
        )
    # A date needs a unit: "<M8" has none.
    if array.ndim == 0 or array.dtype.kind not in "biufM" or array.dtype.str == "<M8":
        raise StorageError(f"{path} is damaged: it holds {array.dtype}, not a list of numbers or dates. {_AGAIN}")
    if not (array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative):
        raise StorageError(f"{path} is damaged: its memory layout is not the one that chronospike writes. {_AGAIN}")
    verify = array.nbytes <= _VERIFY_BYTES if verify is None else verify
    if verify and _array_sum(array) != entry["sha256"]:
        raise StorageError(f"{path} has a wrong checksum: the file was changed or damaged. {_AGAIN}")
    return array

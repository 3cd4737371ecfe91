"""The graph argument of commands: a folder, or the name of a dataset, which is made once and kept in the cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from chronospike.cli.common import say, tell
from chronospike.errors import InputError, nearest


def cache_folder() -> Path:
    """Where graphs of named datasets are kept: CHRONOSPIKE_CACHE, else the user's cache folder."""
    given = os.environ.get("CHRONOSPIKE_CACHE")
    if given:
        return Path(given)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chronospike"
    except RuntimeError as error:
        raise InputError("there is no home folder to keep graphs in. Set CHRONOSPIKE_CACHE to a folder") from error


def dataset_folder(name: str, root: Path | None = None) -> Path:
    """Where the graph of a dataset is kept, whether it is there yet or not.

    One that is read from files is kept by their place, sizes and times of change: other files make another graph.
    Without a place to look for them, the one graph made of such files earlier is taken.
    """
    from chronospike.data.datasets import DATASETS, ROOT_VARIABLE, benchmark_folder

    graphs, spec = cache_folder() / "graphs", DATASETS[name]
    if not spec.files:
        return graphs / name
    if root is None and not os.environ.get(ROOT_VARIABLE):
        earlier = sorted(found.parent for found in graphs.glob(f"*/{name}/meta.json"))
        if len(earlier) == 1:
            return earlier[0]
        if earlier:
            raise InputError(f"{name} was imported from {len(earlier)} sets of files. Choose one with --root")
    state = hashlib.sha256()
    for path in spec.paths(benchmark_folder(spec, root).resolve()):
        facts = path.stat()
        state.update(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return graphs / state.hexdigest()[:12] / name


def graph_folder(graph: str, root: Path | None = None, quiet: bool = False) -> Path:
    """The folder of `graph`; a dataset is imported on first use."""
    from chronospike.data.datasets import DATASETS, load_dataset
    from chronospike.data.storage import save_graph
    from chronospike.locks import wait_for

    path = Path(graph)
    if path.is_dir():
        return path
    if graph not in DATASETS:
        raise InputError(
            f"'{graph}' is neither a graph folder nor a dataset.{nearest(graph, DATASETS)} "
            f"Datasets: {', '.join(DATASETS)}; a folder is made with: chronospike data import FILE -o FOLDER"
        )
    folder = dataset_folder(graph, root)
    if not (folder / "meta.json").is_file():
        with wait_for(folder.with_name(f".{folder.name}.lock"), f"importing {graph}", tell):
            # Another process may have made it in the meantime.
            if not (folder / "meta.json").is_file():
                say(f"importing {graph} into {folder}", unless=quiet)
                save_graph(load_dataset(graph, root=root), folder)
    return folder

"""What commands take for a graph: a folder, or the name of a dataset, which is made once and kept in the cache."""

from __future__ import annotations

import os
from pathlib import Path

from chronospike.cli.common import say, tell
from chronospike.errors import InputError, nearest


def cache_folder() -> Path:
    """Where graphs of named datasets are kept: CHRONOSPIKE_CACHE, else the user's cache folder."""
    given = os.environ.get("CHRONOSPIKE_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chronospike"


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
    folder = cache_folder() / "graphs" / graph
    if not (folder / "meta.json").is_file():
        with wait_for(folder.with_name(f".{folder.name}.lock"), f"importing {graph}", tell):
            # Another process may have made it in the meantime.
            if not (folder / "meta.json").is_file():
                if not quiet:
                    say(f"importing {graph} into {folder}")
                save_graph(load_dataset(graph, root=root), folder)
    return folder

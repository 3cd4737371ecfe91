from __future__ import annotations

from pathlib import Path

import pytest

from chronospike.cli import run as run_command
from chronospike.data.storage import save_graph
from tests.small_runs import assignments, dated_graph, saved_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_graph(tmp_path_factory.mktemp("graphs") / "mine")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph `g` and a finished run `run`, which every test leaves as it was."""
    folder = tmp_path_factory.mktemp("use")
    save_graph(dated_graph(), folder / "g")
    arguments = ["train", folder / "g", "-o", folder / "run", "--device", "cpu", *assignments()]
    assert run_command([str(part) for part in arguments]) == 0
    return folder

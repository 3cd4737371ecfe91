from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chronospike.experiments.cells import EMBEDDINGS, LOG, RESULT, Cell, folder_of, read_result
from chronospike.experiments.engine import Slots, run_cells, seconds_left, share_cpus
from chronospike.methods import registry
from tests.experiments.fake_methods import FAKES
from tests.experiments.small_grids import cell, graph_folder

ONE = Slots(((min(os.sched_getaffinity(0)),),))
PARENT = """
import os, sys
from pathlib import Path
from chronospike.experiments.engine import Slots, run_cells
from chronospike.methods import registry
from tests.experiments.fake_methods import FAKES
from tests.experiments.small_grids import cell
registry.METHODS.update(FAKES)
run_cells([cell(Path(sys.argv[1]), "slow")], Path(sys.argv[2]), Slots(((min(os.sched_getaffinity(0)),),)))
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return graph_folder(tmp_path_factory.mktemp("graphs") / "mine")


@pytest.fixture(autouse=True)
def fake_methods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIT_COUNTER", str(tmp_path / "fits"))
    _register(monkeypatch)


def _register(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, place in FAKES.items():
        monkeypatch.setitem(registry.METHODS, name, place)


def _ended(output: Path, one: Cell, budget: float | None = None) -> dict[str, Any]:
    run_cells([one], output, ONE, budget)
    found = read_result(output, one)
    assert found is not None
    return found


def test_a_cell_leaves_scores_and_costs(graph: Path, tmp_path: Path) -> None:
    found = _ended(tmp_path, cell(graph, "majority", seed=3))
    assert (found["status"], found["seed"], found["parameters"]) == ("done", 3, 0)
    # 24 test nodes, half of each of two classes, all taken for one: F1 is 2/3 and 0.
    assert found["micro_f1"] == pytest.approx(1 / 2)
    assert found["macro_f1"] == pytest.approx(1 / 3)
    assert found["test_nodes"] == 24
    assert sorted(found["per_class_f1"].values()) == pytest.approx([0, 2 / 3])
    assert found["peak_memory_bytes"] > 1e7
    assert found["device"] == "cpu (1 thread)"
    assert found["settings"]["ratio"] == 0.8
    # Nothing went wrong after the result was written, either.
    assert (folder_of(tmp_path, cell(graph, "majority", seed=3)) / LOG).read_text() == ""


def test_finished_cells_are_not_fitted_again_after_an_interrupt(graph: Path, tmp_path: Path) -> None:
    cells = [cell(graph, "counted", seed) for seed in range(3)]

    def interrupt(one: Cell, result: Mapping[str, Any], seconds: float) -> None:
        if one.settings.seed == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, tmp_path, ONE, on_end=interrupt)
    run_cells(cells, tmp_path, ONE)
    assert (tmp_path / "fits").read_text().split() == ["0", "1", "2"]


def test_two_variants_with_the_same_inputs_are_fitted_once(graph: Path, tmp_path: Path) -> None:
    run_cells([cell(graph, "counted"), cell(graph, "counted", variant="the same")], tmp_path, ONE)
    assert (tmp_path / "fits").read_text().split() == ["0"]


def test_a_cell_that_takes_longer_than_its_budget_ends_with_the_word_time(graph: Path, tmp_path: Path) -> None:
    found = _ended(tmp_path, cell(graph, "slow"), budget=0.2)
    assert (found["status"], found["budget"]) == ("time", 0.2)


def _walking(graph: Path, ratio: float, seed: int = 0, method: str = "walking") -> Cell:
    return cell(graph, method, seed, ratio=ratio, walks=1, length=5, dimension=4)


def test_embeddings_without_labels_are_learned_once_for_all_ratios(graph: Path, tmp_path: Path) -> None:
    cells = [_walking(graph, ratio) for ratio in (0.4, 0.8)]
    # There is room for both at a time, but the second waits for the first.
    run_cells(cells, tmp_path / "shared", Slots(2 * ONE.groups))
    assert (tmp_path / "fits").read_text().splitlines() == ["begin 0", "learn 0", "end 0", "begin 0", "end 0"]
    found = [read_result(tmp_path / "shared", one) or {} for one in cells]
    assert [(one["test_nodes"], one["resumed"]) for one in found] == [(72, False), (24, True)]
    assert not (tmp_path / "shared" / EMBEDDINGS).exists()
    run_cells([cells[1]], tmp_path / "own", ONE)
    own = read_result(tmp_path / "own", cells[1]) or {}
    assert own["per_class_f1"] == found[1]["per_class_f1"]
    assert not own["resumed"]


def test_embeddings_are_kept_while_a_cell_that_needs_them_is_not_done(graph: Path, tmp_path: Path) -> None:
    cells = [_walking(graph, ratio) for ratio in (0.4, 0.8)]

    def interrupt(one: Cell, result: Mapping[str, Any], seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, tmp_path, ONE, on_end=interrupt)
    assert [path.name for path in (tmp_path / EMBEDDINGS).iterdir()] == [cells[0].embeddings]
    run_cells(cells, tmp_path, ONE)
    assert (tmp_path / "fits").read_text().count("learn") == 1
    assert not (tmp_path / EMBEDDINGS).exists()


def test_cells_that_wait_for_embeddings_run_out_of_time_with_them(graph: Path, tmp_path: Path) -> None:
    cells, seen = [_walking(graph, ratio, method="endless") for ratio in (0.4, 0.8)], []
    run_cells(cells, tmp_path, ONE, 0.2, on_end=lambda one, result, took: seen.append((one.id, result["status"], took)))
    assert [one[:2] for one in seen] == [(one.id, "time") for one in cells]
    # The second was not even begun.
    assert seen[0][2] > 0.2 and seen[1][2] == 0
    assert [(read_result(tmp_path, one) or {}).get("budget") for one in cells] == [0.2, 0.2]


@pytest.fixture(scope="module")
def after_failures(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where three cells have failed, each in its own way, before one that is well."""
    output = tmp_path_factory.mktemp("failures")
    with pytest.MonkeyPatch.context() as monkeypatch:
        _register(monkeypatch)
        run_cells([cell(graph, name) for name in ("failing", "broken", "killed", "majority")], output, ONE)
    return output


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("failing", "this graph is too round"),
        ("broken", "ValueError: a number is odd"),
        ("killed", "killed, most likely by the system because memory ran out; log.txt has what it printed"),
    ],
)
def test_a_cell_that_fails_is_recorded_with_its_reason(
    graph: Path, after_failures: Path, method: str, reason: str
) -> None:
    found = read_result(after_failures, cell(graph, method))
    assert found is not None
    assert (found["status"], found["reason"]) == ("failed", reason)


def test_the_rest_goes_on_after_a_failure(graph: Path, after_failures: Path) -> None:
    found = read_result(after_failures, cell(graph, "majority"))
    assert found is not None
    assert found["status"] == "done"


def test_a_cell_ends_with_the_process_that_started_it(graph: Path, tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(graph), str(tmp_path)])
    try:
        (process,) = _wait_for(lambda: _children(parent.pid))
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        _wait_for(lambda: not Path(f"/proc/{process}").exists() or _is_zombie(process))
    finally:
        parent.kill()
    assert not (folder_of(tmp_path, cell(graph, "slow")) / RESULT).exists()


def test_cpus_are_shared_out_among_jobs() -> None:
    assert share_cpus(range(8), ["majority"], 3).groups == ((0, 1), (2, 3), (4, 5))
    assert share_cpus(range(2), ["majority"], 3).groups == ((0,), (1,), (0,))


def test_by_default_simple_methods_share_the_cpus_and_any_other_has_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry.METHODS, "trained", "chronospike.training.learner:Learner")
    assert share_cpus(range(4), ["majority", "trained"], None) == Slots(
        ((0,), (1,), (2,), (3,)), frozenset({"trained"})
    )


def test_the_time_left_goes_by_the_method_and_by_how_many_ran_at_a_time(graph: Path) -> None:
    left = [cell(graph, "majority"), cell(graph, "logistic"), cell(graph, "label-propagation")]
    # 2 s and 10 s as before, 5 s as the mean of those that ended; 15 s of work took 7.5 s.
    took = {"majority": [2.0, 2.0, 1.0, 3.0], "logistic": [10.0, 12.0, 8.0, 2.0]}
    assert seconds_left(left, took, 20.0) == pytest.approx((2 + 8 + 5) * 20 / 40)
    assert seconds_left(left, {}, 0.0) is None


def _wait_for(look: Any) -> Any:
    for _ in range(600):
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen within half a minute")


def _children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in text.split()]


def _is_zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

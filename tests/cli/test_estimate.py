from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chronospike.cli import run
from chronospike.data.storage import save_graph
from chronospike.data.synthetic import synthetic_graph
from chronospike.features.make import make_features
from chronospike.features.options import FastRP

# Parameters for 4 classes, and what each input less saves in the two projections of the first layer.
PARAMETERS, PER_INPUT = 105_088 + 65 * 4, 2 * 128
PAPER = ("--preset", "paper")

# The peak of the process itself; that of getrusage would begin with the parent's.
RUN_AND_TELL_PEAK = """
import sys
from pathlib import Path
from chronospike.cli import run
code = run(sys.argv[1:])
status = Path("/proc/self/status").read_text()
print("\\npeak", int(status.split("VmHWM:")[1].split()[0]) * 1024)
sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHRONOSPIKE_CACHE", str(tmp_path / "cache"))
    return save_graph(synthetic_graph(nodes=200, steps=4, feature_dim=16), tmp_path / "graph")


def dry_run(capsys: pytest.CaptureFixture[str], graph: Path | str, *options: str) -> dict[str, Any]:
    code = run(["train", str(graph), "-o", "no-such-run", "--device", "cpu", "--dry-run", "--json", *options])
    assert code == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_dry_run_writes_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    dry_run(capsys, folder)
    dry_run(capsys, "synthetic")
    assert sorted(tmp_path.rglob("*")) == before


def test_parts_of_the_split_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = dry_run(capsys, folder)
    assert (found["train"], found["validation"], found["test"]) == (150, 10, 40)


def test_width_is_that_of_the_graphs_own_features(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry_run(capsys, folder, *PAPER)["parameters"] == PARAMETERS - (128 - 16) * PER_INPUT


def test_width_is_that_of_the_named_feature_set(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_features(folder, "eight", FastRP(8))
    assert (
        dry_run(capsys, folder, *PAPER, "--set", "features=eight")["parameters"] == PARAMETERS - (128 - 8) * PER_INPUT
    )


def test_width_is_the_settings_where_features_are_still_to_be_made(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = save_graph(replace(synthetic_graph(nodes=200, steps=4), features=None), tmp_path / "bare")
    assert dry_run(capsys, bare, *PAPER)["parameters"] == PARAMETERS
    found = dry_run(capsys, bare, *PAPER, "--set", "feature_dimension=64")
    assert found["parameters"] == PARAMETERS - 64 * PER_INPUT
    assert found["mapped_bytes"] == found["graph_bytes"] + 4 * 4 * 200 * 64


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "fanout=[2, 2]"], "Did you mean 'fanouts'"),
        (["--set", "dropout=1.5"], "dropout"),
        (["--set", "features=nothing"], "nothing"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_bad_input_ends_with_exit_code_2(
    folder: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", str(folder), "-o", "no-such-run", "--dry-run", *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_that_is_not_there_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", str(folder), "-o", "no-such-run", "--dry-run", "--device", "cuda"]) == 2
    assert "--device cpu" in capsys.readouterr().err


def test_feature_set_of_a_dataset_not_imported_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "synthetic", "-o", "no-such-run", "--dry-run", "--set", "features=eight"]) == 2
    assert "eight" in capsys.readouterr().err


def test_table_names_memory_and_no_shortage_where_there_is_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", str(folder), "-o", "no-such-run", "--dry-run", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "memory, CPU" in shown
    assert "Lower batch_size" not in shown


def test_it_says_how_many_networks_and_what_a_batch_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 150 training nodes in batches of at least 32: the default preset asks for more batches than that gives.
    for options, networks in ([], "5 networks of up to 20 epochs"), (["--quality", "fast"], "2 networks of up to 10"):
        assert run(["train", str(folder), "--dry-run", "--device", "cpu", *options]) == 0
        shown = capsys.readouterr().out
        assert networks in shown
        assert "5 an epoch, of up to 32 nodes" in shown


def test_shortage_names_the_settings_to_lower(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronospike.memory.machine_bytes", lambda: 50_000_000)
    assert run(["train", str(folder), "-o", "no-such-run", "--dry-run", "--device", "cpu"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "this machine has 50.0 MB" in last
    assert "Lower batch_size (now 1024) or fanouts (now [5, 2])" in last


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
def test_cpu_estimate_is_within_30_percent_of_what_a_run_uses(tmp_path: Path) -> None:
    graph = save_graph(synthetic_graph(nodes=800, steps=12, feature_dim=128), tmp_path / "graph")
    given = ["train", str(graph), "--device", "cpu", "--json", "-o", str(tmp_path / "run")]
    given += ["--set", "epochs=1", "--set", "samples=1"]
    said, used = (_in_its_own_process([*given, *more]) for more in (["--dry-run"], []))
    estimated = json.loads(said.partition("\npeak ")[0])["peak_cpu_bytes"]
    assert estimated == pytest.approx(int(used.rpartition("peak ")[2]), rel=0.3)


def _in_its_own_process(arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", RUN_AND_TELL_PEAK, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chronospike.cli import run as run_command
from chronospike.training.loop import Trainer
from tests.small_runs import assignments, command, contents, refused, saved_graph, train, worked


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_graph(tmp_path_factory.mktemp("graphs") / "mine")


def begin(graph: Path, output: Path, *more: str | Path) -> list[str]:
    return [str(part) for part in ("train", graph, "-o", output, "--device", "cpu", *assignments(epochs=1), *more)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, graph: Path) -> Path:
    """Finished runs of the seeds 4 and 5, which every test leaves as they are."""
    output = tmp_path_factory.mktemp("runs") / "two"
    assert run_command(begin(graph, output, "--seed", "4", "--seeds", "2")) == 0
    return output


def test_each_seed_is_a_run_of_its_own(
    capsys: pytest.CaptureFixture[str], graph: Path, two: Path, tmp_path: Path
) -> None:
    assert {path.name for path in two.iterdir()} == {"seeds.json", "seed-4", "seed-5"}
    train(capsys, graph, tmp_path / "run", "--seed", "5", epochs=1)
    weights = "model.safetensors"
    assert (two / "seed-5" / weights).read_bytes() == (tmp_path / "run" / weights).read_bytes()
    worked(capsys, "predict", two / "seed-4", "-o", tmp_path / "out.csv")


def test_the_scores_of_all_seeds_are_summed_up(two: Path) -> None:
    found = json.loads((two / "seeds.json").read_text())
    assert [run["seed"] for run in found["runs"]] == [4, 5]
    single = [json.loads((two / f"seed-{seed}" / "metrics.json").read_text()) for seed in (4, 5)]
    mean = sum(one["test"]["macro_f1"] for one in single) / 2
    assert found["summary"]["test"]["macro_f1"]["mean"] == pytest.approx(mean)
    assert set(found["summary"]) == {"test", "label propagation"}


def test_json_is_what_the_file_holds_and_finished_runs_are_left_alone(
    capsys: pytest.CaptureFixture[str], two: Path
) -> None:
    before = contents(two)
    said = json.loads(worked(capsys, "train", "--resume", "-o", two, "--device", "cpu", "--json"))
    assert said == json.loads((two / "seeds.json").read_text())
    assert contents(two) == before


def test_people_get_mean_and_deviation(capsys: pytest.CaptureFixture[str], two: Path) -> None:
    said = worked(capsys, "train", "--resume", "-o", two)
    assert "seed 4 " in said
    assert "±" in said
    assert "mean ± standard deviation (n - 1) of 2 seeds" in said
    assert f"is finished. To train for longer: chronospike train --resume -o {two} --epochs 2" in said


def test_the_unfinished_seeds_are_resumed_and_the_finished_ones_not_repeated(
    capsys: pytest.CaptureFixture[str], graph: Path, two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = Trainer._epoch

    def interrupt(self: Trainer, *arguments: object) -> object:
        if self.settings.seed == 5:
            raise KeyboardInterrupt
        return epoch(self, *arguments)  # type: ignore[arg-type]

    output = tmp_path / "runs"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_epoch", interrupt)
        result = command(capsys, *begin(graph, output, "--seed", "4", "--seeds", "2"))
    assert result.code == 130
    advice = f"Resume with: chronospike train --resume -o {output} --device cpu"
    assert result.err == f"chronospike: interrupted. {advice}\n"
    assert json.loads((output / "seeds.json").read_text())["summary"] is None
    before = contents(output / "seed-4")
    worked(capsys, "train", "--resume", "-o", output, "--device", "cpu")
    assert contents(output / "seed-4") == before
    weights = "seed-5/model.safetensors"
    assert (output / weights).read_bytes() == (two / weights).read_bytes()
    assert (output / "seeds.json").read_bytes() == (two / "seeds.json").read_bytes()


def test_all_seeds_are_trained_for_longer(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    worked(capsys, *begin(graph, tmp_path / "runs", "--seeds", "2"))
    worked(capsys, "train", "--resume", "-o", tmp_path / "runs", "--device", "cpu", "--epochs", "2")
    for seed in (0, 1):
        assert (tmp_path / "runs" / f"seed-{seed}" / "metrics.jsonl").read_text().count("\n") == 2


def test_one_seed_is_a_plain_run(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    worked(capsys, *begin(graph, tmp_path / "run", "--seeds", "1"))
    assert (tmp_path / "run" / "metrics.json").is_file()
    assert not (tmp_path / "run" / "seeds.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [("report",), ("evaluate",), ("predict", "-o", "out.csv"), ("embed", "-o", "out.npy")],
)
def test_commands_for_one_run_say_which_there_are(
    capsys: pytest.CaptureFixture[str], two: Path, arguments: tuple[str, ...]
) -> None:
    said = refused(capsys, arguments[0], two, *arguments[1:])
    assert f"holds 2 runs: seed-4, seed-5. Give one of them, for example {two / 'seed-4'}" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "3"], "was started with 2 seed(s), not 3"),
        (["--seed", "7"], "seed was 4, now 7"),
        (["--set", "p=0.1"], "p was 0.5, now 0.1"),
    ],
)
def test_resuming_otherwise_is_refused(
    capsys: pytest.CaptureFixture[str], two: Path, arguments: list[str], message: str
) -> None:
    before = contents(two)
    assert message in refused(capsys, "train", "--resume", "-o", two, *arguments)
    assert contents(two) == before


def test_runs_that_exist_are_refused(capsys: pytest.CaptureFixture[str], graph: Path, two: Path) -> None:
    before = contents(two)
    for more in ([], ["--seeds", "3"]):
        assert "exists. Choose another name or pass --overwrite" in refused(capsys, *begin(graph, two, *more))
    assert contents(two) == before


def test_a_folder_of_something_else_is_never_overwritten(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    said = refused(capsys, *begin(graph, tmp_path, "--overwrite", "--seeds", "2"))
    assert "holds something else" in said
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_overwriting_replaces_one_run_by_several_and_back(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    train(capsys, graph, output, epochs=1)
    (output / "notes.txt").write_text("mine")
    worked(capsys, *begin(graph, output, "--overwrite", "--seeds", "3"))
    assert {path.name for path in output.iterdir()} == {"seeds.json", "seed-0", "seed-1", "seed-2", "notes.txt"}
    worked(capsys, *begin(graph, output, "--overwrite", "--seeds", "2"))
    assert {path.name for path in output.iterdir()} == {"seeds.json", "seed-0", "seed-1", "notes.txt"}
    worked(capsys, *begin(graph, output, "--overwrite"))
    assert not [path for path in output.iterdir() if path.name.startswith("seed")]
    assert (output / "metrics.json").is_file()
    assert (output / "notes.txt").read_text() == "mine"

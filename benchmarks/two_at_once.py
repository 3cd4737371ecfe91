"""Two trainings at the same time: do both come out right, and how long do they take?

python benchmarks/two_at_once.py [--times 20] [--rounds 3] [--work DIR] [--json FILE]

apart      two `train` on one graph folder without features, into two run folders: both end with exit code 0,
           and the feature set that they share matches its checksums
together   two `train` into one run folder: one ends with 0, the other is refused with 2 and one line
seconds    one training alone, two one after the other, two at once; then the same with threads that spin while
           they wait, as OpenMP's do by default. Each is the median over the rounds, which take turns
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chronospike.data.feature_store import list_features, open_features
from chronospike.data.storage import save_graph
from chronospike.data.synthetic import synthetic_graph
from chronospike.errors import StorageError

COMMAND = [sys.executable, "-c", "from chronospike.cli import main; main()"]
# Little to learn and few features: what counts here is who writes when.
SMALL = ("epochs=1", "hidden=[16,8]", "heads=2", "temporal_heads=2", "fanouts=[3,2]", "feature_dimension=16")
# A value of the user's own, so that nothing is set; GNU's OpenMP does not read this one and does as it does by itself.
SPINNING = {"KMP_BLOCKTIME": "200"}


def start(graph: Path, run: Path, *settings: str, **environment: str) -> subprocess.Popen[str]:
    given = [part for setting in settings for part in ("--set", setting)]
    command = [*COMMAND, "train", str(graph), "-o", str(run), "--device", "cpu", *given]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def finish(*processes: subprocess.Popen[str]) -> list[tuple[int, str]]:
    """Exit code and standard error of each."""
    said = [process.communicate()[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def features_are_right(graph: Path) -> bool:
    found = list_features(graph)
    try:
        for one in found:
            open_features(graph, one.name, verify=True)
    except StorageError:
        return False
    return len(found) == 1 and found[0].complete


def apart(graph: Path, work: Path) -> bool:
    """Two run folders, and features that both need and neither has."""
    shutil.rmtree(graph / "features", ignore_errors=True)
    ends = finish(*(start(graph, work / name, *SMALL) for name in ("a", "b")))
    return [code for code, _ in ends] == [0, 0] and features_are_right(graph)


def together(graph: Path, work: Path) -> bool:
    """One run folder."""
    ends = finish(*(start(graph, work / "r", *SMALL) for _ in range(2)))
    (first, _), (last, refusal) = sorted(ends)
    return (first, last) == (0, 2) and "is in use by process" in refusal and refusal.count("\n") == 1


def count(case: Callable[[Path, Path], bool], graph: Path, times: int) -> int:
    """How many of `times` came out right."""
    right = 0
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=graph.parent) as work:
            right += case(graph, Path(work))
    return right


def epoch_seconds(run: Path) -> float:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return statistics.median(float(json.loads(line)["seconds"]) for line in lines)


def seconds(graph: Path, epochs: int, **environment: str) -> dict[str, float]:
    """Wall-clock of one training, of two one after the other and of two at once, and an epoch alone and beside."""
    measured = {}
    for name, parts in (("one alone", (1,)), ("one after the other", (1, 1)), ("at once", (2,))):
        with tempfile.TemporaryDirectory(dir=graph.parent) as work:
            began = time.perf_counter()
            for part, number in enumerate(parts):
                runs = [Path(work) / f"{part}-{i}" for i in range(number)]
                ends = finish(*(start(graph, run, f"epochs={epochs}", **environment) for run in runs))
                if any(code for code, _ in ends):
                    raise SystemExit(f"training failed: {ends}")
            measured[name] = time.perf_counter() - began
            measured[f"epoch, {name}"] = statistics.median(map(epoch_seconds, Path(work).iterdir()))
    return measured


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    found = {name: round(statistics.median(one[name] for one in rounds), 2) for name in rounds[0]}
    ratio = statistics.median(one["at once"] / one["one after the other"] for one in rounds)
    return {**found, "at once / one after the other": round(ratio, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="pairs of each kind; 0 leaves them out")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of the seconds; 0 leaves them out")
    parser.add_argument("--epochs", type=int, default=20, help="of a timed training")
    parser.add_argument("--work", type=Path, help="for graphs and runs; default: a folder that is removed again")
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        graph = Path(work) / "graph"
        save_graph(synthetic_graph(nodes=500, steps=5, feature_dim=0), graph)
        for case in (apart, together) if options.times else ():
            result[case.__name__] = count(case, graph, options.times)
            print(f"{case.__name__}: {result[case.__name__]} of {options.times} came out right", flush=True)
        if options.rounds:
            timed = save_graph(synthetic_graph(nodes=2000, steps=12), Path(work) / "timed")
            quiet, spinning = [], []
            for _ in range(options.rounds):
                quiet.append(seconds(timed, options.epochs))
                spinning.append(seconds(timed, options.epochs, **SPINNING))
            result |= {"as it is": medians(quiet), "threads that spin": medians(spinning)}
            for name in ("as it is", "threads that spin"):
                print(f"{name}: " + ", ".join(f"{what} {value}" for what, value in result[name].items()))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

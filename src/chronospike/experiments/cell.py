"""The process of one cell: `python -m chronospike.experiments.cell FOLDER CPU,CPU,…`.

It reads cell.json and leaves result.json. It ends, with all that it started, when its standard input does: the process
that started the cell holds the other end and may itself be killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronospike.errors import ChronoSpikeError
from chronospike.experiments.cells import EMBEDDINGS, RESULT, RUN, SPEC
from chronospike.files import read_json, write_json
from chronospike.threads import wait_quietly

if TYPE_CHECKING:
    from chronospike.config import Settings
    from chronospike.data.graph import DynamicGraph
    from chronospike.data.splits import Split
    from chronospike.training.learner import FitContext, Fitted


def main(folder: Path, cpus: set[int]) -> None:
    """Fit the cell of `folder` on these CPUs and write down how it ended."""
    # Before torch, OpenMP and the like count the CPUs.
    os.sched_setaffinity(0, cpus)
    wait_quietly()
    try:
        result = fit_cell(folder, read_json(folder / SPEC, "Start the comparison again"))
    except ChronoSpikeError as error:
        result = {"status": "failed", "reason": " ".join(str(error).split())}
    except Exception as error:
        traceback.print_exc()
        result = {"status": "failed", "reason": " ".join(f"{type(error).__name__}: {error}".split())}
    write_json(folder / RESULT, result)
    if result["status"] == "done":
        shutil.rmtree(folder / RUN, ignore_errors=True)


def fit_cell(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """The contents of result.json: scores on the test nodes, and what they cost."""
    import torch

    from chronospike.config import make_settings
    from chronospike.data.storage import open_graph
    from chronospike.device import choose_device, keep_freed_memory, peak_memory
    from chronospike.methods.registry import METHODS, learner_type
    from chronospike.training.hardware import device_name, versions
    from chronospike.training.learner import FitContext
    from chronospike.training.task import make_task, split_for

    # It may be registered only where the cell was started.
    METHODS[spec["method"]] = spec["learner"]
    kind = learner_type(spec["method"])
    settings = make_settings(kind.settings_type, spec["settings"])
    device = choose_device(spec["device"])
    keep_freed_memory()
    # Whoever started the cells has checked the sums.
    graph = open_graph(spec["graph"], features=spec["features"] or "none", verify=False)
    learner = kind(settings)
    learner.check(graph)
    split = split_for(graph, settings)
    context, resumed = FitContext(), False
    if learner.keeps_checkpoints:
        shared = spec["embeddings"]
        path = folder.parent.parent / EMBEDDINGS / shared if shared else folder / RUN
        context, resumed = _context(path, spec, settings, graph, split)
    began = time.perf_counter()
    fitted = learner.fit(make_task(graph, settings, device, split, needs_features=kind.needs_features), context)
    seconds, cost = time.perf_counter() - began, fitted.cost
    # A simple method may leave the GPU alone.
    used = device if cost.peak_memory else torch.device("cpu")
    return {
        "status": "done",
        **_scores(fitted),
        "parameters": cost.parameters,
        "seconds": seconds,
        "seconds_per_epoch": cost.seconds_per_epoch,
        "epochs": cost.epochs,
        "best_epoch": cost.best_epoch,
        "peak_memory_bytes": cost.peak_memory or peak_memory(used),
        "resumed": resumed,
        "settings": settings.model_dump(mode="json"),
        "features": spec["features"],
        "device": device_name(used),
        "versions": versions(),
    }


def _context(
    path: Path, spec: dict[str, Any], settings: Settings, graph: DynamicGraph, split: Split
) -> tuple[FitContext, bool]:
    """Where a method keeps its checkpoints, and whether it resumes from some."""
    from chronospike.training.learner import FitContext
    from chronospike.training.run_folder import RUN as FACTS
    from chronospike.training.run_folder import RunFolder

    run = RunFolder(path)
    if not (path / FACTS).is_file():
        # It is the last file that a run begins with.
        shutil.rmtree(path, ignore_errors=True)
        facts = {name: spec[name] for name in ("method", "graph", "features")}
        run.begin(spec["method"], settings, facts, graph, split, overwrite=False)
    return FitContext(run=run, resume=True), run.checkpoint.is_file()


def _scores(fitted: Fitted) -> dict[str, Any]:
    """F1 on the test nodes, and on the validation nodes by the fit that has not learned from them."""
    from chronospike.training.scoring import score_nodes

    graph, split = fitted.task.graph, fitted.split
    test = score_nodes(fitted, split.test)
    result: dict[str, Any] = {
        "macro_f1": test.macro_f1,
        "micro_f1": test.micro_f1,
        "per_class_f1": dict(zip(graph.class_names, test.per_class, strict=True)),
        "test_nodes": len(split.test),
    }
    held_out = fitted.held_out() if len(split.validation) else None
    if held_out is not None:
        validation = score_nodes(held_out, split.validation)
        result |= {"validation_macro_f1": validation.macro_f1, "validation_micro_f1": validation.micro_f1}
    return result


def _end_with_standard_input() -> None:
    """End this process and all in its group once nobody holds the other end of its standard input."""

    def watch() -> None:
        # Not by sys.stdin, whose lock a thread must not hold when Python ends.
        while os.read(0, 1):
            pass
        # Started by hand, it may be in the group of somebody else.
        os.killpg(0, signal.SIGKILL) if os.getpgrp() == os.getpid() else os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _end_with_standard_input()
    main(Path(sys.argv[1]), {int(number) for number in sys.argv[2].split(",")})

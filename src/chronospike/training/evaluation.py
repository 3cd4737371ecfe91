"""What a trained model is worth: scores beside the majority class and label propagation, and firing rates."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike._version import __version__
from chronospike.data.diffusion import label_propagation
from chronospike.nn.model import ChronoSpike, Record
from chronospike.training.inference import LANE
from chronospike.training.metrics import Scores, score_predictions
from chronospike.training.problem import Problem

Nodes = NDArray[np.integer[Any]]


def score_nodes(problem: Problem, predicted: NDArray[np.integer[Any]], nodes: Nodes) -> Scores:
    """Scores of `predicted [N]` on `nodes`."""
    truth = problem.targets(nodes).cpu()
    return score_predictions(truth, torch.from_numpy(predicted[nodes]), problem.graph.num_classes)


def as_dict(scores: Scores, class_names: tuple[str, ...], nodes: int) -> dict[str, Any]:
    """Scores ready for JSON, with the class names."""
    return {
        "macro_f1": scores.macro_f1,
        "micro_f1": scores.micro_f1,
        "per_class_f1": dict(zip(class_names, scores.per_class, strict=True)),
        "confusion": [list(row) for row in scores.confusion],
        "nodes": nodes,
    }


def reference_scores(problem: Problem, nodes: Nodes) -> dict[str, dict[str, float]]:
    """What needs no model: the largest class, and the training labels spread over the edges."""
    graph, train = problem.graph, problem.split.train
    assert graph.labels is not None
    labels = np.asarray(graph.labels)
    largest = int(np.bincount(labels[train], minlength=graph.num_classes).argmax())
    guesses = {
        "majority class": np.full(graph.num_nodes, largest),
        "label propagation": label_propagation(graph, train).argmax(axis=1),
    }
    result = {}
    for name, guess in guesses.items():
        found = score_nodes(problem, guess, nodes)
        result[name] = {"macro_f1": found.macro_f1, "micro_f1": found.micro_f1}
    return result


@torch.no_grad()
def firing_rates(model: ChronoSpike, problem: Problem, nodes: Nodes) -> list[list[float]]:
    """Share of neurons that fire, per layer and step, over up to 256 of `nodes`; nothing for ReLU."""
    if problem.settings.neuron == "relu" or len(nodes) == 0:
        return []
    some = nodes[np.linspace(0, len(nodes) - 1, min(LANE, len(nodes))).astype(int)]
    record = Record()
    model.eval()
    model(problem.rows(some, 0), record)
    return [spikes.mean(dim=(1, 2)).tolist() for spikes in record.spikes]


def versions() -> dict[str, str]:
    """The versions that decide the bits."""
    return {"chronospike": __version__, "torch": torch.__version__, "numpy": np.__version__,
            "python": platform.python_version()}  # fmt: skip


def device_name(device: torch.device) -> str:
    """`cpu` with its thread count, or the name of the GPU."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"cpu ({torch.get_num_threads()} threads)"

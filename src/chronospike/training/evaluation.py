"""What a trained model is worth: scores beside those of simple methods, what to look at, and firing rates."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike._version import __version__
from chronospike.data.label_propagation import label_propagation
from chronospike.data.splits import Split
from chronospike.nn.model import ChronoSpike, Record
from chronospike.training.inference import LANE
from chronospike.training.logistic import logistic_regression
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


def reference_scores(problem: Problem, split: Split) -> dict[str, dict[str, Any]]:
    """Test scores of what needs no network: the largest class, labels spread over the edges, the features alone.

    All learn from the training nodes of `problem`; `split` is the one before any refit.
    """
    graph, train, nodes = problem.graph, problem.split.train, split.test
    largest = int(np.bincount(problem.targets(train).cpu().numpy(), minlength=graph.num_classes).argmax())
    fitted, facts = logistic_regression(problem, split, nodes)
    guesses = {
        "majority class": (np.full(len(nodes), largest), {}),
        "label propagation": (label_propagation(graph, train).argmax(axis=1)[nodes], {}),
        "logistic regression": (fitted, facts),
    }
    truth = problem.targets(nodes).cpu()
    result: dict[str, dict[str, Any]] = {}
    for name, (guess, more) in guesses.items():
        found = score_predictions(truth, torch.from_numpy(guess), graph.num_classes)
        result[name] = {"macro_f1": found.macro_f1, "micro_f1": found.micro_f1, **more}
    return result


def confidently_wrong(
    problem: Problem, probabilities: NDArray[Any], nodes: Nodes, limit: int = 20
) -> list[dict[str, Any]]:
    """Those of `nodes` that are wrong with the highest probabilities `[N, C]`, with the ids and classes of the user."""
    graph = problem.graph
    truth = problem.targets(nodes).cpu().numpy()
    predicted = probabilities[nodes].argmax(axis=1)
    sure = probabilities[nodes, predicted]
    wrong = np.flatnonzero(predicted != truth)
    chosen = wrong[np.argsort(-sure[wrong], kind="stable")[:limit]]
    return [
        {
            "node": graph.ids[int(nodes[i])],
            "class": graph.class_names[truth[i]],
            "predicted": graph.class_names[predicted[i]],
            # A mean of single-precision probabilities may end a rounding above one.
            "probability": min(1.0, round(float(sure[i]), 6)),
        }
        for i in chosen
    ]


def unlabelled_shares(problem: Problem, predicted: NDArray[np.integer[Any]], nodes: Nodes) -> dict[str, Any] | None:
    """How many of the unlabelled among `nodes` are predicted as each class (`predicted [N]`), and the training labels.

    None where there are no such nodes.
    """
    graph, train = problem.graph, problem.split.train
    assert graph.labels is not None
    unknown = nodes[np.asarray(graph.labels)[nodes] < 0]
    if len(unknown) == 0:
        return None

    def per_class(codes: NDArray[np.integer[Any]]) -> dict[str, int]:
        sizes = np.bincount(codes, minlength=graph.num_classes)
        return dict(zip(graph.class_names, sizes.tolist(), strict=True))

    return {
        "nodes": len(unknown),
        "predicted": per_class(predicted[unknown]),
        "training": per_class(problem.targets(train).cpu().numpy()),
    }


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

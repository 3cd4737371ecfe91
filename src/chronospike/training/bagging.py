"""Several networks, each trained without one fold of the labelled nodes, and their combination: a bag.

Every labelled node is left out by one network, whose probabilities for it are *out of fold*. They select the weights of
networks and second stage, and the temperature, and give an estimate of the score from all labelled nodes. If the best
epoch is selected, it is on nodes outside the fold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import nn

from chronospike.data.label_features import stratified_folds
from chronospike.errors import StorageError, one_line
from chronospike.files import atomic_file, require_readable
from chronospike.rng import stream
from chronospike.training.calibration import with_temperature
from chronospike.training.final_stage import (
    ENSEMBLE,
    FEATURES_ALONE,
    LABELS_ALONE,
    NETWORK,
    FinalStage,
    Values,
    log_probabilities,
    mean_alone,
    rows_read,
    softmax,
    weighted_mean,
)
from chronospike.training.known_labels import hold_out
from chronospike.training.learner import Cost, Fitted, Progress
from chronospike.training.loop import TrainingFailure
from chronospike.training.metrics import score_predictions
from chronospike.training.network import Network
from chronospike.training.run_folder import RunFolder
from chronospike.training.second_stage import (
    ALONE,
    BASES,
    BOOSTED_CLASSES,
    FEATURES,
    are_better,
    cross_validate,
    ensemble_weights,
    fit_each,
)
from chronospike.training.settings import TrainingSettings
from chronospike.training.task import Nodes, Task
from chronospike.training.weights import save_weights

# Two folds of fewer nodes say nothing.
_FEWEST = 8
# With fewer known nodes no network reads a label of its fold around other nodes, either: see `fold_task`.
STRICT_NODES = 5000
# The fact in a weights file that makes it a bag.
FOLDS = "folds"
# Of the cross-validation of a second stage, which learns from no label of the fold that is left out: with fewer folds,
# and so fewer labels, it would look worse than it is beside the networks.
STAGE_FOLDS = 5


@dataclass(frozen=True)
class Folds:
    """The known nodes of a task and the fold of each, `[K]` both."""

    nodes: NDArray[np.int64]
    number: NDArray[np.int64]

    @property
    def count(self) -> int:
        return int(self.number.max()) + 1

    def members(self, fold: int) -> NDArray[np.int64]:
        """The nodes of a fold."""
        return np.asarray(self.nodes[self.number == fold])


def make_folds(task: Task, wanted: int) -> tuple[Folds | None, str]:
    """Stratified folds of the known nodes, `wanted` or one each, and a line on classes that they cannot divide, if any.

    None where there are too few nodes for any. A class of two nodes is learned by every network: fewer folds would only
    leave it, and all others, with fewer nodes.
    """
    labels = task.labels(task.known)
    if len(labels) < _FEWEST or len(np.unique(labels)) < 2:
        return None, f"training one network: {len(labels)} labelled nodes are too few for {wanted} folds"
    count, note = min(wanted, len(labels)), ""
    single = np.flatnonzero(np.bincount(labels) == 1)
    if len(single):
        name = f"'{task.graph.class_names[single[0]]}'"
        of = f"class {name} has" if len(single) == 1 else f"{len(single)} classes, such as {name}, have"
        note = f"{of} one labelled node, which cannot be both learned and predicted out of fold"
    return Folds(task.known, stratified_folds(labels, count, stream(task.seed, "folds"))), note


def fold_task(task: Task, folds: Folds, fold: int, settings: TrainingSettings) -> Task:
    """What one network learns from: all known nodes but those of its fold, some of them to choose the epoch by.

    Where known nodes are few, the labels of the fold are not read around the others, either. A label that was met there
    beside one that was learned says something of the pair, and out of fold a few hundred random labels then look 56 %
    right instead of 50. Where they are many that does not show, and all networks share what is read.
    """
    rest = folds.nodes[folds.number != fold]
    seed = stream(task.seed, "bag", fold) >> 1
    held = np.zeros(len(rest), dtype=bool)
    if settings.selection != "last" and len(task.split.validation):
        held = hold_out(task.labels(rest), len(task.split.validation) / len(task.known), seed)
    return task.divided(rest[~held], rest[held], seed, forget=len(task.known) < STRICT_NODES)


class BagFitted(Fitted):
    """Networks on folds, and the stage after them.

    Args:
        task: with the split as it was made.
        networks: one for each fold, in their order.
        out_of_fold: `[K, C]` of the nodes of the folds: what is predicted of them by what has not learned from them.
    """

    def __init__(
        self,
        task: Task,
        networks: list[Network],
        folds: Folds,
        final: FinalStage,
        out_of_fold: Values,
        cost: Cost,
    ) -> None:
        self.given, self.task = task, task.with_all_labels()
        # A validation node of a fold that no network has left out says nothing.
        self.split = replace(task.split, validation=np.intersect1d(task.split.validation, folds.nodes))
        self.networks, self.folds, self.final = networks, folds, final
        self.out_of_fold, self.cost = out_of_fold, cost
        self._of_all: NDArray[np.float32] | None = None

    @property
    def calibration(self) -> FinalStage | None:
        return self.final if self.final.chosen_nodes else None

    @property
    def was_refitted(self) -> bool:
        """Never: no network has learned from its fold, and `held_out` is there for all known nodes."""
        return False

    def each(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.float32]:
        """`[networks, K, C]` what every network says of `nodes`."""
        if self._of_all is not None:
            return self._of_all[:, nodes]
        found = np.empty((len(self.networks), len(nodes), self.task.graph.num_classes), dtype=np.float32)
        for number, network in enumerate(self.networks):
            told = _share(on_nodes, number, len(self.networks))
            found[number] = network.infer(network.module, nodes, told)[0].numpy()
        if np.array_equal(nodes, np.arange(self.task.graph.num_nodes)):
            self._of_all = found
        return found

    def bagged(self, nodes: Nodes, on_nodes: Progress | None = None) -> Values:
        """`[K, C]` mean log-probabilities of the networks."""
        return np.asarray(log_probabilities(self.each(nodes, on_nodes)).mean(axis=0))

    def probabilities(self, nodes: Nodes, on_nodes: Progress | None = None) -> Values:
        return self.final.probabilities(self.bagged(nodes, on_nodes), self.task, nodes)

    def labels_alone(self, nodes: Nodes) -> Values | None:
        """`[K, C]` what the method `labels` predicts, whose classifiers are members of the ensemble.

        None if not all of them are there, or if they read own attributes, too.
        """
        task, names = self.task, [name for name in self.final.stages if name.startswith(LABELS_ALONE)]
        has_own = task.features is not None and task.features.own(task.last_step, nodes[:1]) is not None
        if len(names) < len(_bases(task)) or has_own or len(self.folds.nodes) < len(task.known):
            return None
        no_logs = np.zeros((len(nodes), task.graph.num_classes))
        return mean_alone(self.final.members(no_logs, task, nodes, names))[LABELS_ALONE]

    def embeddings(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.float32]:
        """`[K, networks · d]`: the embeddings of all networks side by side."""
        parts = [
            network.infer(network.module, nodes, _share(on_nodes, number, len(self.networks)))[1].numpy()
            for number, network in enumerate(self.networks)
        ]
        return np.concatenate(parts, axis=1)

    def until(self, last_step: int) -> BagFitted:
        task = self.given.until(last_step)
        # One table of what is read of roots for all of them.
        first = self.networks[0].for_task(task.with_all_labels())
        networks = _members(first, [network.module for network in self.networks])
        return BagFitted(task, networks, self.folds, self.final, self.out_of_fold, self.cost)

    def held_out(self) -> Fitted:
        return OutOfFold(self)

    def save(self, run: RunFolder) -> None:
        modules = nn.ModuleList(network.module for network in self.networks)
        description = {**self.networks[0].description(), FOLDS: len(self.networks)}
        weights = save_weights(modules, run.weights, description, self.task.graph.class_names)
        self.final.save(run.final_stage, weights)
        self.task.tables.save(run.label_features)
        with atomic_file(run.out_of_fold) as partial:
            pq.write_table(out_of_fold_table(self), partial, write_page_checksum=True)

    def details(self) -> dict[str, Any]:
        return {**self.networks[0].details(), "parts": self._parts(), "estimate": self._estimate()}

    def _parts(self) -> list[dict[str, Any]]:
        """What it is made of, with scores on nodes that the part has not learned from and on the test nodes."""
        test, final = self.split.test, self.final
        labels, count = self.task.labels(test), len(self.networks)
        alone = [f1(found, labels) for found in self.each(test)]
        mean = {name: float(np.mean([scores[name] for scores in alone])) for name in alone[0]}
        logs = self.bagged(test)
        found = final.members(logs, self.task, test, [NETWORK, *final.stages])
        found |= {**mean_alone(found), final.name: final.uncalibrated(logs, self.task, test)}
        scores = {name: f1(values, labels) for name, values in found.items()}
        chosen = "bag" if final.name == NETWORK else final.name
        rows: list[tuple[str, str, Any, Any]] = [
            (NETWORK, f"one network, mean of {count}", final.held_out.get(NETWORK), mean),
            ("bag", f"bag of {count} networks", None, scores[NETWORK]),
        ]
        titles = {ENSEMBLE: "ensemble, a weighted mean", LABELS_ALONE: "labels alone, the mean of them"}
        others = {name: held_out for name, held_out in final.held_out.items() if name != NETWORK}
        rows += [(name, titles.get(name, name), held_out, scores.get(name)) for name, held_out in others.items()]
        weights = {("bag" if name == NETWORK else name): weight for name, weight in final.weights.items()}
        return [
            {"name": name, "title": title + _weight(weights, name), "held_out": held_out, "test": of_test}
            | {"chosen": name == chosen, "on": "out-of-fold"}
            for name, title, held_out, of_test in rows
        ]

    def _estimate(self) -> dict[str, Any] | None:
        """What the folds say of the score to be expected, and how much they differ; None on a graph without them."""
        if not len(self.folds.nodes):
            return None
        labels, folds = self.task.labels(self.folds.nodes), self.folds.number
        each = [f1(self.out_of_fold[folds == fold], labels[folds == fold]) for fold in np.unique(folds)]
        spread = {
            f"{name}_std": float(np.std([scores[name] for scores in each], ddof=1)) if len(each) > 1 else 0.0
            for name in each[0]
        }
        facts = {"on": "out-of-fold", "nodes": len(labels), "folds": len(each)}
        scores = f1(self.out_of_fold, labels)
        low, high = prediction_interval([one["micro_f1"] for one in each], len(labels), len(self.split.test))
        return {**facts, **scores, **spread, "micro_f1_low": low, "micro_f1_high": high}


class OutOfFold(Fitted):
    """Of the known nodes what a bag says of them out of fold; of all others what it predicts."""

    def __init__(self, bag: BagFitted) -> None:
        self._bag, self.task, self.split, self.cost = bag, bag.given, bag.split, bag.cost

    def probabilities(self, nodes: Nodes, on_nodes: Progress | None = None) -> Values:
        place = np.full(self.task.graph.num_nodes, -1)
        place[self._bag.folds.nodes] = np.arange(len(self._bag.folds.nodes))
        known = place[nodes] >= 0
        result = np.empty((len(nodes), self.task.graph.num_classes))
        result[known] = self._bag.out_of_fold[place[nodes[known]]]
        if not known.all():
            result[~known] = self._bag.probabilities(nodes[~known], on_nodes)
        return result

    def embeddings(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.float32]:
        return self._bag.embeddings(nodes, on_nodes)

    def until(self, last_step: int) -> Fitted:
        return self._bag.until(last_step).held_out()


def finish(
    task: Task,
    networks: list[Network],
    folds: Folds,
    settings: TrainingSettings,
    cost: Cost,
    is_late: Callable[[], bool] | None = None,
    watch: Progress | None = None,
) -> BagFitted:
    """What follows the training of the networks: out-of-fold probabilities, the second stage, the temperature.

    There may be fewer networks than folds, if time ran out: the nodes of the other folds are then out of none.
    """
    done = folds.number < len(networks)
    folds = Folds(folds.nodes[done], folds.number[done])
    labels, classes = task.labels(folds.nodes), task.graph.num_classes
    # What is foretold reads all labels but its own, as it will: the network has met none of those of its fold.
    networks = _members(networks[0].for_task(task.with_all_labels()), [network.module for network in networks])
    logs = np.empty((len(labels), classes))
    for fold, network in enumerate(networks):
        found, _ = network.infer(network.module, folds.members(fold))
        if not found.isfinite().all():
            raise TrainingFailure(f"the predictions of network {fold + 1} are not finite. {network.diagnosis()}")
        logs[folds.number == fold] = log_probabilities(found.numpy())
    out_of_fold = {NETWORK: softmax(logs)}
    final = FinalStage()
    if folds.count > 1 and settings.second_stage != "none":
        final = _second_stage(task, logs, folds, settings.second_stage, out_of_fold, is_late, watch)
        # Where it got late meanwhile, it is the networks alone that predict.
        cost = replace(cost, complete=cost.complete and len(out_of_fold) > 1)
    predicted = weighted_mean(out_of_fold, final.weights)
    scored = {**out_of_fold, **mean_alone(out_of_fold), final.name: predicted}
    final = replace(final, held_out={name: f1(values, labels) for name, values in scored.items()})
    if settings.calibrate:
        final = final.calibrated(predicted, labels, "out-of-fold")
        predicted = with_temperature(predicted, final.temperature)
    return BagFitted(task, networks, folds, final, predicted, cost)


def _second_stage(
    task: Task,
    logs: Values,
    folds: Folds,
    asked: str,
    out_of_fold: dict[str, Values],
    is_late: Callable[[], bool] | None,
    watch: Progress | None,
) -> FinalStage:
    """Classifiers over the log-probabilities `[K, C]` of the nodes of the folds, and how much each counts.

    The networks have to be worth it: unless the ensemble is better than the mean of the classifiers that do not read
    them, it is that mean, which is what the method `labels` predicts.

    Args:
        asked: the setting `second_stage`.
        out_of_fold: what the networks say of these nodes; to it is added what each classifier says of them.
    """
    labels, classes = task.labels(folds.nodes), task.graph.num_classes
    bases = _bases(task)
    stacked = {"auto": BASES[:1], "mean": bases}.get(asked, (asked,))
    wanted = {f"stack: {kind}": kind for kind in stacked}
    if asked == "auto":
        wanted |= {f"{LABELS_ALONE}: {kind}": kind for kind in bases}
        wanted |= {f"{FEATURES_ALONE}: logistic": "logistic"} if task.features is not None else {}
    # With the seed of the method `labels`.
    seed, fits = task.seed, itertools.count(1)
    alone = [name for name in wanted if name.startswith(LABELS_ALONE)]
    sizes = {name: FEATURES for name in wanted if name.startswith(FEATURES_ALONE)} | dict.fromkeys(alone, ALONE)
    divided = stratified_folds(labels, STAGE_FOLDS, stream(task.seed, "stage folds"))
    total = len(wanted) * (STAGE_FOLDS + 1)

    def tell() -> None:
        if watch is not None:
            watch(next(fits), total)

    def rows_without(left_out: NDArray[np.bool_]) -> dict[str, NDArray[np.float32]]:
        # Labels to foretell are not read around the nodes that are learned from: with the rows of one neighbour in a
        # leaf of a tree, they leak, and random labels of PubMed then score 41.4 % instead of 39.9. A node to foretell
        # reads all labels but its own, as it will: with a fifth of them missing, DBLP looked 0.8 points worse.
        rest, there = np.setdiff1d(task.known, folds.nodes[left_out]), folds.nodes[left_out]
        around = task.divided(rest, rest[:0], forget=True).tables.features
        around[there] = task.tables.features[there]
        return rows_read(wanted, logs, task, folds.nodes, around)

    found = cross_validate(rows_without, wanted, labels, classes, divided, seed, sizes, tell, is_late)
    if found is None:
        return FinalStage()
    out_of_fold |= found
    weights = dict.fromkeys(found, 1 / len(found))
    if asked == "auto":
        weights, without = ensemble_weights(out_of_fold, labels), dict.fromkeys(alone, 1 / len(alone))
        if not are_better(weighted_mean(out_of_fold, weights), mean_alone(found)[LABELS_ALONE], labels):
            weights = without
    # What has no weight is fitted to be looked at only.
    fitted = list(found) if is_late is None or not is_late() else [name for name in found if name in weights]
    reads = rows_read(fitted, logs, task, folds.nodes)
    stages = fit_each(reads, wanted, labels, classes, seed, sizes, tell)
    return FinalStage(stages, weights)


def _bases(task: Task) -> tuple[str, ...]:
    return BASES if task.graph.num_classes <= BOOSTED_CLASSES else BASES[:-1]


def _weight(weights: Mapping[str, float], name: str) -> str:
    return f", weight {100 * weights[name]:.0f} %" if len(weights) > 1 and name in weights else ""


def loaded_bag(
    task: Task, network: Network, modules: Sequence[nn.Module], final: FinalStage, out_of_fold: pa.Table, path: Path
) -> BagFitted:
    """The same modules on the graph of the task, for which `network` was made.

    Args:
        out_of_fold, path: what `out_of_fold_table` gave, and where it was read from.
    """
    networks = _members(network.for_task(task.with_all_labels()), modules)
    folds, values = _placed(out_of_fold, task, path, len(networks))
    for stage in final.stages.values():
        if stage.classes != task.graph.num_classes:
            raise StorageError(f"{path.parent} holds a second stage of {stage.classes} classes. Train the run again")
    parameters = sum(value.numel() for module in modules for value in module.parameters())
    return BagFitted(task, networks, folds, final, values, Cost(parameters))


def _members(network: Network, modules: Sequence[nn.Module]) -> list[Network]:
    """The same network with each of the modules."""
    members = []
    for module in modules:
        member = network.for_task(network.task)
        member.module = module
        members.append(member)
    return members


def out_of_fold_table(bag: BagFitted) -> pa.Table:
    """The nodes of the folds by their ids, the fold of each, and its probabilities out of fold."""
    graph = bag.task.graph
    columns: dict[str, Any] = {"node": graph.ids.take(bag.folds.nodes), "fold": bag.folds.number}
    columns |= {f"probability {name}": bag.out_of_fold[:, i] for i, name in enumerate(graph.class_names)}
    return pa.table(columns)


def read_out_of_fold(path: Path) -> pa.Table:
    """What `BagFitted.save` wrote of `out_of_fold_table`."""
    require_readable(path)
    try:
        return pq.read_table(path, page_checksum_verification=True).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"{path} is damaged ({one_line(error)}). Train the run again") from error


def _placed(table: pa.Table, task: Task, path: Path, count: int) -> tuple[Folds, Values]:
    """Folds, `count` of them, and probabilities `[K, C]` of the nodes that are known in the graph of the task."""
    try:
        names = [f"probability {name}" for name in task.graph.class_names]
        if any(table[name].null_count for name in ("node", "fold", *names)):
            raise ValueError("a value is missing")
        values = np.column_stack([table[name].to_numpy() for name in names]).astype(np.float64)
        number = table["fold"].to_numpy().astype(np.int64)
        places = task.graph.ids.lookup(pa.concat_arrays(table["node"].chunks))
        if not np.array_equal(np.unique(number), np.arange(count)):
            raise ValueError(f"its folds are not those of {count} networks")
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError("a probability is out of range")
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise StorageError(f"{path} is damaged ({one_line(error)}). Train the run again") from error
    here = np.isin(places, task.known)
    return Folds(places[here], number[here]), values[here]


def prediction_interval(folds: Sequence[float], nodes: int, test: int) -> tuple[float, float]:
    """Where the Micro-F1 of `test` further nodes lies 95 times in a hundred, by the scores of folds of `nodes` in all.

    Student's t for the mean of the folds and one more score of a set of that size. The folds may differ by chance less
    than nodes drawn at random would, which then decides; of n nodes that are all right, n + 1 of n + 2 are taken to be.
    """
    from scipy.special import stdtrit

    count, mean = len(folds), float(np.mean(folds))
    if count < 2:
        return 0.0, 1.0
    right = (mean * nodes + 1) / (nodes + 2)
    of_node = max(float(np.var(folds, ddof=1)) * nodes / count, right * (1 - right))
    half = float(stdtrit(count - 1, 0.975)) * np.sqrt(of_node * (1 / nodes + 1 / max(1, test)))
    return max(0.0, float(mean - half)), min(1.0, float(mean + half))


def f1(probabilities: Values, labels: NDArray[np.int64]) -> dict[str, float]:
    """Macro- and Micro-F1 of the likeliest classes, ready for JSON."""
    predicted = torch.from_numpy(probabilities.argmax(axis=1))
    found = score_predictions(torch.from_numpy(labels), predicted, probabilities.shape[1])
    return {"macro_f1": found.macro_f1, "micro_f1": found.micro_f1}


def _share(on_nodes: Progress | None, number: int, count: int) -> Progress | None:
    """Progress over the nodes of all networks, told by one of them."""
    if on_nodes is None:
        return None
    return lambda done, total: on_nodes((number * total + done) // count, total)

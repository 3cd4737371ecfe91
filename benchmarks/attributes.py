"""What the scaling of users' own attributes is worth, on a generated payments graph.

    python benchmarks/attributes.py            # a few minutes on two cores

5,000 accounts, about 38,000 payments over 18 months, four classes of very different sizes that pay across, 30 % of the
accounts without a label, and a table of attributes as people have them: an amount with a heavy tail, a count that is
mostly zero, a region, gaps. Four ways to bring the same table, the same splits and seeds, the default preset, Micro-
and Macro-F1 on the test nodes:

    one block       every column as it comes, all standardised together (what made features get)
    z-scored        the two numbers z-scored by hand first, then as before
    as they come    the table as it is: what `--features attributes.csv` does
    none            made features (FastRP) instead of attributes
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from chronospike import ChronoSpikeClassifier, DynamicGraph, import_graph

NODES, DAYS, PAYMENTS = 5_000, 548, 38_000
SHARES = (0.62, 0.2, 0.12, 0.06)


def payments(seed: int) -> tuple[DynamicGraph, dict[str, Any]]:
    """The graph without attributes, and the table of attributes."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(4, NODES, p=SHARES)
    # Like pays unlike: whom a class pays, and how often.
    pays = np.array([[1, 6, 2, 1], [6, 0.5, 0.5, 0.2], [2, 1, 1, 4], [1, 0.2, 4, 0.5]])
    rate = np.exp(rng.normal(np.array([0.0, 0.8, 0.3, 1.2])[kind], 0.8))
    source = rng.choice(NODES, PAYMENTS, p=rate / rate.sum())
    members = [np.flatnonzero(kind == k) for k in range(4)]
    towards = (pays / pays.sum(axis=1, keepdims=True)).cumsum(axis=1)
    meets = (rng.random(PAYMENTS)[:, None] > towards[kind[source]]).sum(axis=1).clip(max=3)
    target = np.array([rng.choice(members[k]) for k in meets])
    day = np.datetime64("2022-01-03") + rng.integers(0, DAYS, PAYMENTS)
    names = np.array([f"acc-{k:05d}" for k in range(NODES)])
    known = rng.random(NODES) < 0.7
    labels = {str(names[v]): "abcd"[kind[v]] for v in np.flatnonzero(known)}
    graph = import_graph(
        (names[source], names[target], day), labels=labels, every="1mo", on_unknown="drop", directed=False
    )
    turnover = np.exp(rng.normal(np.array([6.0, 7.0, 6.4, 7.8])[kind], 1.6))
    complaints = rng.poisson(np.array([0.1, 0.2, 0.9, 0.5])[kind]).astype(float)
    lives = np.array([[0.3, 0.6, 0.8, 0.95], [0.2, 0.4, 0.6, 0.7]])[(kind > 1).astype(int)]
    region = np.array(["north", "south", "east", "west", "abroad"])[(rng.random((NODES, 1)) > lives).sum(axis=1)]
    gaps = rng.random(NODES) < 0.05
    table = {
        "node": names.tolist(),
        "turnover": [None if gap else float(value) for gap, value in zip(gaps, turnover, strict=True)],
        "complaints": complaints.tolist(),
        "region": region.tolist(),
    }
    return graph, table


def with_table(graph: DynamicGraph, table: dict[str, Any]) -> DynamicGraph:
    """As `import_graph(..., features=table)` does it."""
    from chronospike.data.reading.attributes import read_features

    values, columns, _ = read_features(table, graph, on_unknown="drop")
    return graph.with_features(values, columns)


def as_block(graph: DynamicGraph, z_score: bool) -> DynamicGraph:
    """The attributes one-hot encoded and standardised all together, gaps as zeros."""
    assert graph.features is not None
    parts = []
    for index, column in enumerate(graph.columns):
        values = np.nan_to_num(np.asarray(graph.features[:, index], dtype=np.float64))
        if column.kind == "category":
            parts.append(np.eye(len(column.values))[values.astype(int)])
        else:
            parts.append(((values - values.mean()) / values.std() if z_score else values)[:, None])
    block = np.concatenate(parts, axis=1).astype(np.float32)
    made = np.broadcast_to(block, (graph.num_steps, *block.shape))
    return graph.with_features(None).with_made_features(made)


def score(graph: DynamicGraph, split_seed: int, seed: int, epochs: int | None, **values: Any) -> tuple[float, float]:
    """Micro- and Macro-F1 on a fifth of the labelled nodes, stratified."""
    from chronospike import make_split

    split = make_split(graph, 0.8, 0.0, seed=split_seed)
    if epochs is not None:
        values["epochs"] = epochs
    model = ChronoSpikeClassifier(graph, seed=seed, **values).fit(split.train)
    truth = np.array(graph.class_names)[np.asarray(graph.labels)[split.test]]
    found = model.predict(split.test)
    return 100 * f1_score(truth, found, average="micro"), 100 * f1_score(truth, found, average="macro")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="model seeds")
    parser.add_argument("--graph-seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=None, help="instead of the preset's")
    options = parser.parse_args()
    graph, table = payments(options.graph_seed)
    print(graph)
    assert graph.labels is not None
    counts = np.bincount(np.asarray(graph.labels)[graph.labelled])
    print(
        f"majority class {100 * counts.max() / counts.sum():.1f} %; split seed 42, model seeds 0 to {options.seeds - 1}"
    )
    own = with_table(graph, table)
    ways: dict[str, tuple[DynamicGraph, dict[str, Any]]] = {
        "one block": (as_block(own, z_score=False), {}),
        "z-scored": (as_block(own, z_score=True), {}),
        "as they come": (own, {}),
        "none": (graph, {"feature_method": "fastrp"}),
    }
    print(f"{'':14}{'Micro-F1':>16}{'Macro-F1':>16}")
    for name, (data, values) in ways.items():
        found = [score(data, 42, seed, options.epochs, **values) for seed in range(options.seeds)]
        columns = []
        for column in zip(*found, strict=True):
            spread = statistics.stdev(column) if len(column) > 1 else 0.0
            columns.append(f"{statistics.mean(column):8.2f} ± {spread:4.2f}")
        print(f"{name:14}{columns[0]:>16}{columns[1]:>16}", flush=True)


if __name__ == "__main__":
    main()

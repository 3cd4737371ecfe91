"""Is the estimate honest? Over other splits of a dataset, how often its 95 % interval holds the test score.

    python benchmarks/interval.py [--data dblp,pubmed] [--splits 10] [--first 0] [--ratio 0.8] [--shuffle]

Each split has another `split_seed` and the same settings, those of the dataset's preset or the default. Printed are the
out-of-fold Micro-F1 with its interval and the Micro-F1 of the test nodes. With --shuffle labels are dealt out to the
nodes at random first: every score should then be that of the largest class, or below.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from chronospike import DynamicGraph
from chronospike.config import preset_names
from chronospike.data.datasets import load_dataset
from chronospike.device import choose_device, keep_freed_memory
from chronospike.features.make import with_features_for
from chronospike.methods.registry import learner_type, owned_preset, settings_for
from chronospike.training.scoring import score_nodes
from chronospike.training.task import make_task


def shuffled(graph: DynamicGraph) -> DynamicGraph:
    """The same graph with its labels dealt out anew."""
    assert graph.labels is not None
    labels, rng = np.array(graph.labels), np.random.default_rng(0)
    labels[graph.labelled] = rng.permutation(labels[graph.labelled])
    return graph.with_labels(labels, graph.class_names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="dblp,pubmed")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first of the splits, to continue with others")
    parser.add_argument("--ratio", type=float, default=0.8)
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = choose_device(options.device)
    keep_freed_memory()
    kind = learner_type("chronospike")
    for name in options.data.split(","):
        graph, preset = load_dataset(name), owned_preset(name if name in preset_names() else "default")
        graph = with_features_for(graph, settings_for("chronospike", preset, {}), str(device))
        graph = shuffled(graph) if options.shuffle else graph
        held = []
        for seed in range(options.first, options.first + options.splits):
            settings = settings_for("chronospike", preset, {"split_seed": seed, "ratio": options.ratio})
            began = time.perf_counter()
            fitted = kind(settings).fit(make_task(graph, settings, device))
            found = fitted.details()["estimate"]
            test = score_nodes(fitted, fitted.split.test).micro_f1
            held.append(found["micro_f1_low"] <= test <= found["micro_f1_high"])
            low, high = 100 * found["micro_f1_low"], 100 * found["micro_f1_high"]
            print(
                f"{name} split {seed}: out-of-fold {100 * found['micro_f1']:.2f} ({low:.2f} to {high:.2f}), "
                f"test {100 * test:.2f}{'' if held[-1] else ' OUTSIDE'}, {time.perf_counter() - began:.0f} s",
                flush=True,
            )
            if options.shuffle:
                parts = {part["name"]: part["held_out"] for part in fitted.details()["parts"] if part["held_out"]}
                print("  " + ", ".join(f"{part} {100 * scores['micro_f1']:.2f}" for part, scores in parts.items()))
        assert graph.labels is not None
        largest = np.bincount(np.asarray(graph.labels)[graph.labelled]).max() / len(graph.labelled)
        print(f"{name}: {sum(held)} of {len(held)} within the interval; the largest class has {100 * largest:.2f} %")


if __name__ == "__main__":
    main()

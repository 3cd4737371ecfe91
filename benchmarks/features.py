"""DeepWalk features of DBLP: speed against gensim on the CPU, all 27 snapshots on a GPU, and what they are worth.

    python benchmarks/features.py                  # CPU: the same walks for gensim and for us
    python benchmarks/features.py --device cuda    # GPU: every snapshot, after one to warm up

Tokens are counted alike for both programs: every node of every walk. gensim's subsampling of frequent tokens is off
(`sample=0`), since we have none; window 10 (drawn from 1..10), one negative, 128 dimensions, one epoch for both.
Only training is timed: gensim's vocabulary and our noise table are made before.

One split of 5,617 test nodes has a standard error of 0.6 points and one table differs
from the next by about 0.3, so the two programs are compared by the mean over three splits and three sets of walks.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.ingest import import_graph
from chronospike.features.biased_walks import random_walks
from chronospike.features.deepwalk import DeepWalkSteps
from chronospike.features.noise import NoiseTable, expected_visits, noise_table
from chronospike.features.options import DeepWalk
from chronospike.features.skipgram import _CHUNK_TOKENS, Schedule, Table, _train_on_walks, initial_tables
from chronospike.features.walks import cumulative_snapshot, derive_key, walk_starts
from chronospike.threads import run_chunks

OPTIONS = DeepWalk()
WALK_SEEDS = (0, 1, 2)
CPUS = 2
SPLIT_SEEDS = (42, 43, 44)


def load_dblp(root: Path) -> DynamicGraph:
    return import_graph(root / "dblp" / "dblp.txt", labels=root / "dblp" / "node2label.txt")


def micro_f1(features: NDArray[Any], labels: NDArray[Any], split_seed: int = SPLIT_SEEDS[0]) -> float:
    """Micro-F1 in percent of logistic regression on standardised features: 80 % to fit, stratified."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fit, test = train_test_split(np.arange(len(labels)), test_size=0.2, random_state=split_seed, stratify=labels)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(features[fit], labels[fit])
    return 100 * float(f1_score(labels[test], model.predict(features[test]), average="micro"))


def train_on_walks(
    tables: tuple[Table, Table],
    walks: NDArray[np.int32],
    noise: NoiseTable,
    schedule: Schedule,
    threads: int | None = None,
) -> None:
    """`train_on_graph` for a `[W, L]` matrix of walks (-1 after the end of a short one), keyed by their numbers."""
    window, negatives, key, rate, drop = schedule
    settings = window, negatives, np.uint64(key), float(rate), float(drop)
    rows, keys = (*tables, tables[0][:0]), np.arange(len(walks))
    chunk = max(1, _CHUNK_TOKENS // walks.shape[1])
    for first in range(0, len(walks), chunk):

        def work(low: int, high: int, first: int = first) -> None:
            share = slice(first + low, first + high)
            _train_on_walks(*rows, walks[share], keys[share], *noise, None, None, None, 0, *settings, first + low, 0)

        run_chunks(work, min(chunk, len(walks) - first), threads)


def all_walks(graph: DynamicGraph, step: int, seed: int) -> NDArray[np.int32]:
    """`[W, L]` the walks of every pass, as `DeepWalkSteps` would make them."""
    snapshot = cumulative_snapshot(graph, step)
    keys = [derive_key(seed, step, 0, number) for number in range(OPTIONS.walks)]
    return np.concatenate([random_walks(snapshot, walk_starts(snapshot, key), OPTIONS.length, key) for key in keys])


def ours(graph: DynamicGraph, walks: NDArray[np.int32], seed: int) -> tuple[float, NDArray[Any]]:
    """Tokens per second and the table."""
    noise = noise_table(expected_visits(cumulative_snapshot(graph, graph.num_steps - 1), OPTIONS.length))
    drop = (OPTIONS.learning_rate - OPTIONS.min_learning_rate) / len(walks)
    schedule = Schedule(OPTIONS.window, OPTIONS.negatives, derive_key(seed), OPTIONS.learning_rate, drop)
    tables = initial_tables(graph.node_keys, OPTIONS.dimension, seed)
    began = time.perf_counter()
    train_on_walks(tables, walks, noise, schedule, CPUS)
    return walks.size / (time.perf_counter() - began), tables[0]


def gensims(graph: DynamicGraph, walks: NDArray[np.int32], seed: int) -> tuple[float, NDArray[Any]]:
    """The same of gensim's fastest mode, which reads a text file in its worker threads."""
    from gensim.models import Word2Vec

    with tempfile.TemporaryDirectory() as folder:
        corpus = str(Path(folder) / "walks.txt")
        with Path(corpus).open("w") as file:
            file.writelines(" ".join(map(str, walk)) + "\n" for walk in walks.tolist())
        model = Word2Vec(
            vector_size=OPTIONS.dimension, window=OPTIONS.window, negative=OPTIONS.negatives, sg=1, hs=0, sample=0,
            min_count=1, workers=CPUS, epochs=1, alpha=OPTIONS.learning_rate, min_alpha=OPTIONS.min_learning_rate,
            seed=seed,
        )  # fmt: skip
        model.build_vocab(corpus_file=corpus)
        began = time.perf_counter()
        model.train(corpus_file=corpus, total_words=walks.size, total_examples=len(walks), epochs=1)
        rate = walks.size / (time.perf_counter() - began)
    table = initial_tables(graph.node_keys, OPTIONS.dimension, seed)[0]
    for word, index in model.wv.key_to_index.items():
        table[int(word)] = model.wv.vectors[index]
    return rate, table


def bench_cpu(graph: DynamicGraph) -> dict[str, Any]:
    programs = {"chronospike": ours}
    if find_spec("gensim") is None:
        print("gensim is not installed: no comparison. Run: pip install 'chronospike[bench]'")
    else:
        programs["gensim"] = gensims
    assert graph.labels is not None
    rates: dict[str, list[float]] = {name: [] for name in programs}
    scores: dict[str, list[list[float]]] = {name: [] for name in programs}
    ours(graph, all_walks(graph, graph.num_steps - 1, 0)[:64], 0)
    # By turns, so that a machine that slows down does not favour either.
    for seed in WALK_SEEDS:
        walks = all_walks(graph, graph.num_steps - 1, seed)
        for name, program in programs.items():
            rate, table = program(graph, walks, seed)
            rates[name].append(rate)
            scores[name].append([micro_f1(table, graph.labels, split) for split in SPLIT_SEEDS])
            shown = ", ".join(f"{score:.2f}" for score in scores[name][-1])
            print(f"{name:12} walk seed {seed}: {rate / 1e6:.2f} M tokens/s, Micro-F1 {shown} (splits {SPLIT_SEEDS})")
    result: dict[str, Any] = {"tokens": walks.size, "threads": CPUS, "tokens_per_second": rates, "micro_f1": scores}
    means = {name: float(np.mean(found)) for name, found in scores.items()}
    print("mean Micro-F1: " + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items()))
    if "gensim" in programs:
        result["ratio"] = float(np.median(rates["chronospike"]) / np.median(rates["gensim"]))
        result["micro_f1_difference"] = means["chronospike"] - means["gensim"]
        print(f"ratio of tokens per second {result['ratio']:.2f}, Micro-F1 {result['micro_f1_difference']:+.2f} points")
    return result


def bench_defaults(graph: DynamicGraph, device: str) -> dict[str, Any]:
    """What `chronospike features deepwalk` makes for the last step, and on a GPU the time for all steps."""
    result: dict[str, Any] = {"device": device}
    steps = [graph.num_steps - 1] if device == "cpu" else list(range(graph.num_steps))
    DeepWalkSteps(graph, OPTIONS, device).make_step(0)
    began = time.perf_counter()
    for step in steps:
        features = DeepWalkSteps(graph, OPTIONS, device).make_step(step)
    result["seconds"] = time.perf_counter() - began
    result["steps"] = len(steps)
    assert graph.labels is not None
    result["micro_f1_last_step"] = micro_f1(features, graph.labels)
    print(
        f"{device}: {len(steps)} snapshot(s) in {result['seconds']:.2f} s; "
        f"last step, 80 %: Micro-F1 {result['micro_f1_last_step']:.2f} (the paper's DeepWalk row: 66.4)"
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("CHRONOSPIKE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(default), help="the folder that holds dblp/dblp.txt")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for the GPU path")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    graph = load_dblp(options.data)
    result: dict[str, Any] = {"settings": OPTIONS.recipe()}
    if options.device == "cpu":
        result["against_gensim"] = bench_cpu(graph)
    result["defaults"] = bench_defaults(graph, options.device)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

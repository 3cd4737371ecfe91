"""Second-order random walks on DBLP's last snapshot: steps per second beside PecanPy's and fastnode2vec's.

    pip install --no-deps pecanpy fastnode2vec nptyping numba-progress gensim smart_open wrapt tqdm
    python benchmarks/walks.py [--data ../shared/data] [--json FILE]

Walks of 80 moves from every node, ten from each, p = 0.5 and q = 2, two threads for everyone. All make a matrix of
node indices in compiled code; only that is timed, by turns, and the best of the rounds counts, since what else a
machine does can only add to a time; beside it stands the same by CPU seconds. What a package does before (PecanPy's
alias tables, compilation) is timed apart. PecanPy's users get lists of text made from the matrix in Python, and
fastnode2vec's ask for one walk after another from Python: both would take longer than is counted here.

Whether two programs draw from the same distribution is asked of all (previous, current, next) nodes: a chi-square test
of ours against the weights of node2vec, and one of ours against each package.

`--no-deps`, since nptyping, which PecanPy names types by, asks for names that numpy 2 has dropped. They are put back
here before it is imported.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from chronospike.compiled import njit
from chronospike.data.datasets import load_dataset
from chronospike.features.biased_walks import contains, fill_walks, walk_bias
from chronospike.features.walks import Snapshot, cumulative_snapshot, derive_key, sorted_rows, walk_starts
from chronospike.threads import run_chunks

P, Q = 0.5, 2.0
PASSES, MOVES = 10, 80
THREADS, ROUNDS = 2, 5
# Of PecanPy's SparseOTF, which is slow.
FEW_PASSES = 2
TARGET = 3.0
FEWEST = 10.0
# Of numpy 1.
OLD_NAMES = {
    "bool8": np.bool_, "object0": np.object_, "int0": np.intp, "uint0": np.uintp, "void0": np.void, "str0": np.str_,
    "bytes0": np.bytes_, "float_": np.float64, "complex_": np.complex128, "cfloat": np.complex128,
    "string_": np.bytes_, "unicode_": np.str_, "longfloat": np.longdouble, "singlecomplex": np.complex64,
    "longcomplex": np.clongdouble, "clongfloat": np.clongdouble,
}  # fmt: skip

Walks = NDArray[Any]
Program = Callable[[int], Walks]


def ours(snapshot: Snapshot) -> tuple[Program, dict[str, float]]:
    bias = walk_bias(P, Q)

    def make(seed: int) -> Walks:
        count = int((snapshot.degrees > 0).sum())
        walks = np.empty((PASSES * count, 1 + MOVES), dtype=np.int32)
        for number in range(PASSES):
            key = derive_key(seed, number)
            part = walks[number * count : (number + 1) * count]
            fill_walks(part, snapshot, walk_starts(snapshot, key), key, bias, THREADS)
        return walks

    began = time.perf_counter()
    fill_walks(np.empty((4, 1 + MOVES), dtype=np.int32), snapshot, walk_starts(snapshot, 0)[:4], 0, bias, THREADS)
    return make, {"compiling": time.perf_counter() - began}


def pecanpys(snapshot: Snapshot, mode: str, passes: int) -> tuple[Program, dict[str, float]]:
    for name, kind in OLD_NAMES.items():
        if not hasattr(np, name):
            setattr(np, name, kind)
    package = import_module("pecanpy.pecanpy")
    numba.set_num_threads(THREADS)
    model = getattr(package, mode)(p=P, q=Q, workers=THREADS)
    model.set_node_ids([str(node) for node in range(len(snapshot.degrees))])
    model.indptr, model.indices = snapshot.indptr.astype(np.uint32), snapshot.neighbours.astype(np.uint32)
    model.data = np.ones(len(snapshot.neighbours), dtype=np.float32)
    began = time.perf_counter()
    model.preprocess_transition_probs()
    prepared = time.perf_counter()
    functions = model.get_has_nbrs(), model.get_move_forward()
    progress_bar = import_module("numba_progress").ProgressBar
    every = np.tile(np.flatnonzero(snapshot.degrees), passes)

    def make(seed: int, count: int = len(every)) -> Walks:
        starts = np.random.default_rng(seed).permutation(every)[:count].astype(np.uint32)
        with progress_bar(total=count, disable=True) as progress:
            walks: Walks = model._random_walks(count, MOVES, seed, starts, *functions, progress)
        return walks[:, :-1]

    make(0, 4)
    return make, {"preparing": prepared - began, "compiling": time.perf_counter() - prepared}


def fastnode2vecs(snapshot: Snapshot) -> tuple[Program, dict[str, float]]:
    one_walk = import_module("fastnode2vec.graph")._random_walk

    @numba.njit(nogil=True)
    def fill(walks: Any, indptr: Any, indices: Any, starts: Any, low: Any, high: Any) -> None:
        for w in range(low, high):
            walk = one_walk(indptr, indices, walks.shape[1], P, Q, starts[w])
            walks[w, : len(walk)] = walk

    indptr, every = snapshot.indptr.astype(np.int32), np.tile(np.flatnonzero(snapshot.degrees), PASSES)

    def make(seed: int, count: int = len(every)) -> Walks:
        starts = np.random.default_rng(seed).permutation(every)[:count].astype(np.int32)
        walks = np.empty((count, 1 + MOVES), dtype=np.int32)
        run_chunks(lambda low, high: fill(walks, indptr, snapshot.neighbours, starts, low, high), count, THREADS)
        return walks

    began = time.perf_counter()
    make(0, 4)
    return make, {"compiling": time.perf_counter() - began}


def programs(snapshot: Snapshot) -> dict[str, tuple[Program, dict[str, float]]]:
    """All that are installed, ours first."""
    found = {"chronospike": ours(snapshot)}
    if find_spec("pecanpy") is None:
        print("PecanPy is not installed: skipped. See the top of this file for what to install")
    else:
        for mode, passes in (("PreComp", PASSES), ("SparseOTF", FEW_PASSES)):
            found[f"PecanPy {mode}"] = pecanpys(snapshot, mode, passes)
    if find_spec("fastnode2vec") is None:
        print("fastnode2vec is not installed: skipped. See the top of this file for what to install")
    else:
        found["fastnode2vec"] = fastnode2vecs(snapshot)
    return found


def count_triples(snapshot: Snapshot, walks: Walks) -> NDArray[np.int64]:
    """How often each (previous, current, next) came up: for each edge, a cell for each neighbour of its end."""
    offsets = triple_offsets(snapshot)
    counts = np.zeros(offsets[-1], dtype=np.int64)
    _count_triples(snapshot.indptr, snapshot.neighbours, offsets, walks, counts)
    return counts


def triple_offsets(snapshot: Snapshot) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(snapshot.degrees[snapshot.neighbours], dtype=np.int64)])


@njit
def _place(indptr: Any, neighbours: Any, node: Any, other: Any) -> Any:
    return indptr[node] + np.searchsorted(neighbours[indptr[node] : indptr[node + 1]], other)


@njit
def _count_triples(indptr: Any, neighbours: Any, offsets: Any, walks: Any, counts: Any) -> None:
    for w in range(len(walks)):
        for i in range(2, walks.shape[1]):
            old, node = np.int64(walks[w, i - 2]), np.int64(walks[w, i - 1])
            edge = _place(indptr, neighbours, old, node)
            counts[offsets[edge] + _place(indptr, neighbours, node, walks[w, i]) - indptr[node]] += 1


@njit
def _weights(indptr: Any, neighbours: Any, offsets: Any, p: Any, q: Any, weights: Any) -> None:
    """Of each cell of `count_triples`, the probability of the next node given the two before."""
    for old in range(len(indptr) - 1):
        for edge in range(indptr[old], indptr[old + 1]):
            node = neighbours[edge]
            cells = weights[offsets[edge] : offsets[edge + 1]]
            for j in range(len(cells)):
                other = neighbours[indptr[node] + j]
                near = contains(neighbours, indptr[old], indptr[old + 1] - indptr[old], other)
                cells[j] = 1 / p if other == old else 1.0 if near else 1 / q
            cells /= cells.sum()


def chi_square(
    snapshot: Snapshot, counts: NDArray[np.int64], others: NDArray[np.int64] | None = None
) -> tuple[float, int, float]:
    """Of `counts` against the weights, or against other counts: the statistic, degrees of freedom and p-value.

    Cells of an edge of which too few are expected are taken together; where these are still too few, the edge is
    left out.
    """
    offsets = triple_offsets(snapshot)
    edges = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    if others is None:
        shares, correction = np.empty(len(counts)), np.ones(len(offsets) - 1)
        _weights(snapshot.indptr, snapshot.neighbours, offsets, P, Q, shares)
        samples = [counts]
    else:
        both = counts + others
        totals = np.maximum(1, np.add.reduceat(both, offsets[:-1]))
        # Where the shares come from n counts of both, the expected statistic is n / (n - 1) times the freedom.
        shares, correction = both / totals[edges], (totals - 1) / totals
        samples = [counts, others]
    expected = [np.add.reduceat(sample, offsets[:-1])[edges] * shares for sample in samples]
    few = np.min(expected, axis=0) < FEWEST
    rest = [np.bincount(edges[few], values[few], len(offsets) - 1) for values in expected]
    least = np.min(rest, axis=0)
    cells = np.bincount(edges[~few], minlength=len(offsets) - 1) + (least >= FEWEST)
    used = (cells > 1) & ((least == 0) | (least >= FEWEST))
    chosen, statistic = ~few & used[edges], 0.0
    for sample, wanted, small in zip(samples, expected, rest, strict=True):
        distance = (sample[chosen] - wanted[chosen]) ** 2 / wanted[chosen]
        statistic += float(distance @ correction[edges[chosen]])
        together = used & (least > 0)
        found = np.bincount(edges[few], sample[few], len(offsets) - 1)[together]
        statistic += float((found - small[together]) ** 2 / small[together] @ correction[together])
    freedom = int((cells[used] - 1).sum())
    return statistic, freedom, float(chi2.sf(statistic, freedom))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("CHRONOSPIKE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(default), help="the folder that holds dblp/dblp.txt")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    graph = load_dataset("dblp", root=options.data)
    snapshot = sorted_rows(cumulative_snapshot(graph, graph.num_steps - 1))
    print(
        f"{len(snapshot.degrees):,} nodes, {len(snapshot.neighbours) // 2:,} edges, p = {P}, q = {Q}, "
        f"{THREADS} threads, load average {os.getloadavg()[0]:.1f}"
    )
    found = programs(snapshot)
    rounds: dict[str, list[float]] = {name: [] for name in found}
    by_cpu: dict[str, list[float]] = {name: [] for name in found}
    counts: dict[str, NDArray[np.int64]] = {}
    # By turns, so that a machine that slows down favours nobody.
    for seed in range(ROUNDS):
        for name, (make, _) in found.items():
            began, used = time.perf_counter(), time.process_time()
            walks = make(seed)
            steps = len(walks) * MOVES
            rounds[name].append(steps / (time.perf_counter() - began))
            by_cpu[name].append(steps / (time.process_time() - used))
            if seed == 0:
                counts[name] = count_triples(snapshot, walks)
            del walks
    rates = {name: max(values) for name, values in rounds.items()}
    result: dict[str, Any] = {"threads": THREADS, "p": P, "q": Q, "programs": {}}
    for name, (_, before) in found.items():
        apart = ", ".join(f"{what} {taken:.1f} s" for what, taken in before.items())
        spread = ", ".join(f"{rate / 1e6:.1f}" for rate in rounds[name])
        statistic, freedom, chance = chi_square(snapshot, counts[name])
        print(
            f"{name:18} {rates[name] / 1e6:6.2f} M steps/s (rounds {spread}), "
            f"{max(by_cpu[name]) / 1e6:.2f} M a CPU second; {apart}; "
            f"against the weights: chi-square {statistic:,.0f} of {freedom:,}, p-value {chance:.3f}"
        )
        result["programs"][name] = {
            "steps_per_second": rounds[name], "steps_per_cpu_second": by_cpu[name], "apart": before, "p_value": chance,
        }  # fmt: skip
    for name in list(found)[1:]:
        statistic, freedom, chance = chi_square(snapshot, counts["chronospike"], counts[name])
        print(
            f"chronospike / {name}: {rates['chronospike'] / rates[name]:.1f} times the steps per second, "
            f"{max(by_cpu['chronospike']) / max(by_cpu[name]):.1f} times those a CPU second; "
            f"the same frequencies: chi-square {statistic:,.0f} of {freedom:,}, p-value {chance:.3f}"
        )
        result["programs"][name]["p_value_against_ours"] = chance
    if len(found) > 1:
        quickest = max(list(found)[1:], key=lambda name: rates[name])
        result["ratio"] = rates["chronospike"] / rates[quickest]
        verdict = "met" if result["ratio"] >= TARGET else "MISSED"
        print(f"target: {TARGET:.0f} times the quickest package ({quickest}): {result['ratio']:.1f}, {verdict}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

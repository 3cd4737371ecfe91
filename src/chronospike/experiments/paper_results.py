"""The scores that the paper reports, to compare with ours.

chronospike.tex, table `perf_comparison`, lines 229 to 254: percent, means of five runs. None is what it calls
"time-consuming". HTNE has the same figures for Macro-F1 and Micro-F1 there, on DBLP and on Tmall.
"""

from __future__ import annotations

METHODS = (
    "deepwalk", "node2vec", "htne", "m2dne", "dytriad", "mpnn-lstm", "jodie", "evolvegcn", "tgat", "spikenet",
    "dy-sign", "delay-dsgn", "chronospike",
)  # fmt: skip

# Dataset and metric, training ratio in percent, then a figure for each method.
_SCORES: dict[tuple[str, str], dict[float, tuple[float | None, ...]]] = {
    ("dblp", "macro_f1"): {
        40: (67.08, 66.07, 67.68, 69.02, 60.45, 64.19, 66.73, 67.22, 71.18, 70.88, 70.94, 72.32, 75.84),
        60: (67.17, 66.81, 68.24, 69.48, 64.77, 63.91, 67.32, 69.78, 71.74, 71.98, 72.07, 74.16, 77.79),
        80: (67.12, 66.93, 68.36, 69.75, 66.42, 65.05, 67.53, 71.20, 72.15, 74.65, 74.67, 76.54, 79.13),
    },
    ("dblp", "micro_f1"): {
        40: (66.53, 66.80, 67.68, 69.23, 65.13, 65.72, 68.44, 69.12, 71.10, 71.98, 71.90, 72.56, 76.80),
        60: (66.89, 67.37, 68.24, 69.47, 66.80, 66.79, 68.51, 70.43, 71.85, 72.35, 72.61, 74.44, 78.47),
        80: (66.38, 67.31, 68.36, 69.71, 66.95, 67.74, 68.80, 71.32, 73.12, 74.86, 74.96, 76.87, 79.33),
    },
    ("tmall", "macro_f1"): {
        40: (49.09, 54.37, 54.81, 57.75, 44.98, 47.71, 52.62, 53.02, 56.90, 58.84, 57.48, 60.25, 60.80),
        60: (49.29, 54.55, 54.89, 57.99, 48.97, 47.78, 54.02, 54.99, 57.61, 61.13, 60.94, 62.56, 62.86),
        80: (49.53, 54.58, 54.93, 58.47, 51.16, 50.27, 54.17, 55.78, 58.01, 62.40, 61.89, 64.02, 64.74),
    },
    ("tmall", "micro_f1"): {
        40: (57.11, 60.41, 54.81, 64.21, 53.24, 57.82, 58.36, 59.96, 62.05, 63.52, 62.93, 64.32, 66.19),
        60: (57.34, 60.56, 54.89, 64.38, 56.88, 57.66, 60.28, 61.19, 62.92, 64.84, 64.10, 66.20, 67.79),
        80: (57.88, 60.66, 54.93, 64.65, 60.72, 58.07, 60.49, 61.77, 63.32, 66.10, 65.82, 67.88, 69.05),
    },
    ("patent", "macro_f1"): {
        40: (72.32, 69.01, None, None, None, None, 77.57, 79.67, 81.51, 83.53, 83.57, 83.72, 86.20),
        60: (72.25, 69.08, None, None, None, None, 77.69, 79.76, 81.56, 83.85, 83.77, 84.01, 86.34),
        80: (72.05, 68.99, None, None, None, None, 77.67, 80.13, 81.57, 83.90, 83.91, 84.20, 86.09),
    },
    ("patent", "micro_f1"): {
        40: (71.57, 68.14, None, None, None, None, 77.64, 79.39, 80.79, 83.48, 83.50, 83.66, 86.03),
        60: (71.53, 68.20, None, None, None, None, 77.89, 79.75, 80.81, 83.80, 83.47, 83.97, 86.16),
        80: (71.38, 68.10, None, None, None, None, 77.93, 80.01, 80.93, 83.88, 83.90, 84.15, 85.94),
    },
}  # fmt: skip


def paper_score(dataset: str | None, method: str, metric: str, ratio: float) -> float | None:
    """What the paper reports, between 0 and 1; None where it reports nothing.

    Args:
        metric: `macro_f1` or `micro_f1`.
        ratio: share of the labelled nodes that is not test.
    """
    row = _SCORES.get((dataset or "", metric), {}).get(round(100 * ratio, 6))
    if row is None or method not in METHODS:
        return None
    score = row[METHODS.index(method)]
    return None if score is None else score / 100

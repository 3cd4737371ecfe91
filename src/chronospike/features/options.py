"""The options of each feature method, and features of another graph as initial values.

Apart from the methods themselves, which import numba: most commands only ask what features are called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from chronospike.data.activity import SUMMARY_WIDTH
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError
from chronospike.threads import default_threads

# Called with (step, done, total); the last two count over all steps.
Progress = Callable[[int, int, int], None]


class _Method:
    """What the options of all methods share.

    Attributes:
        name: of the method.
        unit: of progress reports.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "steps"

    def place(self, device: str) -> str:
        """Where the values are made, if that changes them a little; else nothing."""
        return ""

    def recipe(self) -> dict[str, Any]:
        """What the values depend on, for the feature store."""
        values = asdict(cast("Options", self))
        values.pop("threads", None)
        return {"method": self.name, **values}

    def _require(self, **least: int) -> None:
        for option, bound in least.items():
            value = getattr(self, option)
            if value is None and option == "threads":
                continue
            if not isinstance(value, Integral):
                raise InputError(f"{self.name}: {option} is {value!r}, and must be a whole number")
            if value < bound:
                raise InputError(f"{self.name}: {option} is {value}, and must be at least {bound}")
            self._set(option, int(value))

    def _require_numbers(self, *options: str) -> None:
        for option in options:
            value = getattr(self, option)
            if not isinstance(value, Real):
                raise InputError(f"{self.name}: {option} is {value!r}, and must be a number")
            self._set(option, float(value))

    def _set(self, option: str, value: Any) -> None:
        # Numbers of numpy would not go into a JSON file.
        object.__setattr__(self, option, value)


@dataclass(frozen=True)
class DeepWalk(_Method):
    """Options; the defaults are the benchmark's recipe (10 walks of 80, window 10, one negative, one epoch).

    Attributes:
        dimension: length of a feature vector.
        walks: walks from each node that has a neighbour.
        length: nodes in a walk.
        window: largest distance between centre and context.
        negatives: negative samples per centre.
        epochs: passes, each over new walks.
        learning_rate, min_learning_rate: initial and final value.
        warm_start: initialise each step with the tables of the previous one, which aligns the steps.
        unseen: features of nodes without an edge so far: "noise" (as initialised by word2vec) or "zero".
        threads: CPU threads; by default all.
        seed: random seed.
    """

    dimension: int = 128
    walks: int = 10
    length: int = 80
    window: int = 10
    negatives: int = 1
    epochs: int = 1
    learning_rate: float = 0.025
    min_learning_rate: float = 1e-4
    warm_start: bool = False
    unseen: Literal["noise", "zero"] = "noise"
    threads: int | None = None
    seed: int = 0
    name: ClassVar[str] = "deepwalk"
    unit: ClassVar[str] = "tokens"

    def __post_init__(self) -> None:
        self._require(dimension=1, walks=1, length=2, window=1, negatives=1, epochs=1, seed=0, threads=1)
        self._require_numbers("learning_rate", "min_learning_rate")
        if not 0 < self.min_learning_rate <= self.learning_rate <= 1:
            raise InputError(
                f"deepwalk: the learning rate falls from {self.learning_rate} to {self.min_learning_rate}, "
                "and must fall within 0..1"
            )
        if self.unseen not in ("noise", "zero"):
            raise InputError(f"deepwalk: unseen is {self.unseen!r}, and must be 'noise' or 'zero'")

    def place(self, device: str) -> str:
        """`cpu1`, `cpu2` … by threads, or `gpu`."""
        return f"cpu{self.threads or default_threads()}" if device == "cpu" else "gpu"


@dataclass(frozen=True)
class FastRP(_Method):
    """Options. The authors stop at three or four hops; on DBLP hops 9 to 16 score 20 points of Micro-F1 higher.

    Attributes:
        dimension: length of a feature vector.
        weights: of the neighbourhoods 1, 2, 3, … hops away.
        normalization: the exponent β; below zero, neighbours with many edges count less.
        threads: CPU threads; by default all.
        seed: random seed of the projection.
    """

    dimension: int = 128
    weights: tuple[float, ...] = (0.0,) * 8 + (1.0,) * 8
    normalization: float = 0.0
    threads: int | None = None
    seed: int = 0
    name: ClassVar[str] = "fastrp"

    def __post_init__(self) -> None:
        self._require(dimension=1, seed=0, threads=1)
        try:
            self._set("weights", tuple(float(weight) for weight in self.weights))
        except (TypeError, ValueError):
            raise InputError(f"fastrp: weights are {self.weights!r}, and must be numbers") from None
        if not any(self.weights) or not np.isfinite(self.weights).all():
            raise InputError(f"fastrp: weights are {list(self.weights)}, and must be finite and not all zero")
        self._require_numbers("normalization")
        if not -10 <= self.normalization <= 10:
            raise InputError(f"fastrp: normalization is {self.normalization}, and must be in -10..10")


@dataclass(frozen=True)
class SVD(_Method):
    """Options.

    Attributes:
        dimension: length of a feature vector.
        recency: an edge at step s weighs exp(-recency (1 - s / t)) in the features of step t.
        threads: CPU threads; by default all.
        seed: random seed of the initial projection.
    """

    dimension: int = 128
    recency: float = 3.0
    threads: int | None = None
    seed: int = 0
    name: ClassVar[str] = "svd"

    def __post_init__(self) -> None:
        self._require(dimension=1, seed=0, threads=1)
        self._require_numbers("recency")
        if not 0 <= self.recency <= 100:
            raise InputError(f"svd: recency is {self.recency}, and must be in 0..100")

    def place(self, device: str) -> str:
        """On the CPU, by its threads, which decide the last digits."""
        return f"cpu{self.threads or default_threads()}"


@dataclass(frozen=True)
class Activity(_Method):
    """No options: degrees, their spread over time and the time since the last edge, of each node up to each step."""

    name: ClassVar[str] = "activity"

    @property
    def dimension(self) -> int:
        """log(1 + degree) in the step, and the columns of `activity_summary`."""
        return 1 + SUMMARY_WIDTH


@dataclass(frozen=True)
class Start:
    """Features of another graph as initial values, which keep the new features in the same embedding space.

    Attributes:
        graph: the other graph.
        features: `[T, N, d]`, its features; steps after its last one start from the last.
        key: a fingerprint of the other graph, stored with the new features.
    """

    graph: DynamicGraph
    features: NDArray[Any]
    key: str

    def rows(self, graph: DynamicGraph, step: int) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """`[N]` which nodes of `graph` had an edge there by `step`, and the features of these, `[K, d]`."""
        last = min(step, self.graph.num_steps - 1)
        places = self.graph.ids.lookup(graph.ids.values)
        known = (places >= 0) & self.graph.seen_by(last)[places]
        return known, np.asarray(self.features[last][places[known]], dtype=np.float32)


Options = DeepWalk | FastRP | SVD | Activity

"""ChronoSpike: classify and embed the nodes of a graph that changes over time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chronospike._version import __version__
from chronospike.threads import wait_quietly

if TYPE_CHECKING:
    from chronospike.data.datasets import load_dataset as load_dataset
    from chronospike.data.graph import DynamicGraph as DynamicGraph
    from chronospike.data.ingest import import_graph as import_graph
    from chronospike.data.splits import Split as Split
    from chronospike.data.splits import make_split as make_split
    from chronospike.data.storage import open_graph as open_graph
    from chronospike.data.storage import save_graph as save_graph
    from chronospike.errors import ChronoSpikeError as ChronoSpikeError
    from chronospike.errors import InputError as InputError
    from chronospike.estimator import ChronoSpikeClassifier as ChronoSpikeClassifier
    from chronospike.features.make import carry_features as carry_features
    from chronospike.features.make import make_features as make_features
    from chronospike.features.options import SVD as SVD
    from chronospike.features.options import Activity as Activity
    from chronospike.features.options import DeepWalk as DeepWalk
    from chronospike.features.options import FastRP as FastRP
    from chronospike.sampling.hybrid import HybridSampler as HybridSampler

# Loaded on first use, so that `import chronospike` and `chronospike --help` stay quick.
_HOMES = {
    "Activity": "chronospike.features.options",
    "ChronoSpikeClassifier": "chronospike.estimator",
    "ChronoSpikeError": "chronospike.errors",
    "DeepWalk": "chronospike.features.options",
    "DynamicGraph": "chronospike.data.graph",
    "FastRP": "chronospike.features.options",
    "HybridSampler": "chronospike.sampling.hybrid",
    "InputError": "chronospike.errors",
    "SVD": "chronospike.features.options",
    "Split": "chronospike.data.splits",
    "carry_features": "chronospike.features.make",
    "import_graph": "chronospike.data.ingest",
    "load_dataset": "chronospike.data.datasets",
    "make_features": "chronospike.features.make",
    "make_split": "chronospike.data.splits",
    "open_graph": "chronospike.data.storage",
    "save_graph": "chronospike.data.storage",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        # Most of them load torch, which reads then how its threads are to wait.
        wait_quietly()
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'chronospike' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__

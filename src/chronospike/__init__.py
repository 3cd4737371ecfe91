"""ChronoSpike: classify and embed the nodes of a graph that changes over time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chronospike._version import __version__
from chronospike.threads import wait_quietly

if TYPE_CHECKING:
    from chronospike.data.datasets import load_dataset
    from chronospike.data.graph import DynamicGraph
    from chronospike.data.ingest import import_graph
    from chronospike.data.splits import Split, make_split
    from chronospike.data.storage import open_graph, save_graph
    from chronospike.errors import ChronoSpikeError, InputError
    from chronospike.estimator import ChronoSpikeClassifier
    from chronospike.features.make import carry_features, make_features
    from chronospike.features.options import DeepWalk, FastRP
    from chronospike.sampling.hybrid import HybridSampler

# Loaded on first use, so that `import chronospike` and `chronospike --help` stay quick.
_HOMES = {
    "ChronoSpikeClassifier": "chronospike.estimator",
    "ChronoSpikeError": "chronospike.errors",
    "DeepWalk": "chronospike.features.options",
    "DynamicGraph": "chronospike.data.graph",
    "FastRP": "chronospike.features.options",
    "HybridSampler": "chronospike.sampling.hybrid",
    "InputError": "chronospike.errors",
    "Split": "chronospike.data.splits",
    "carry_features": "chronospike.features.make",
    "import_graph": "chronospike.data.ingest",
    "load_dataset": "chronospike.data.datasets",
    "make_features": "chronospike.features.make",
    "make_split": "chronospike.data.splits",
    "open_graph": "chronospike.data.storage",
    "save_graph": "chronospike.data.storage",
}

__all__ = [
    "ChronoSpikeClassifier",
    "ChronoSpikeError",
    "DeepWalk",
    "DynamicGraph",
    "FastRP",
    "HybridSampler",
    "InputError",
    "Split",
    "__version__",
    "carry_features",
    "import_graph",
    "load_dataset",
    "make_features",
    "make_split",
    "open_graph",
    "save_graph",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        # Most of them load torch, which reads then how its threads are to wait.
        wait_quietly()
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'chronospike' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__

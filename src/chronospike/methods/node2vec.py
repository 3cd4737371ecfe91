"""node2vec: skip-gram on second-order random walks over the edges of all steps together.

With p = q = 1 it is DeepWalk, to the bit.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from chronospike.data.graph import DynamicGraph
from chronospike.features.biased_walks import Bias, walk_bias
from chronospike.methods.deepwalk import SkipGramLearner, SkipGramSettings

Odds = Annotated[float, Field(ge=1e-6, le=1e6)]


class Node2VecSettings(SkipGramSettings):
    """node2vec. The published program has p = q = 1, which is DeepWalk; its authors choose both by validation."""

    p: Odds = Field(1.0, description="return parameter: above 1, a walk returns to the previous node less often")
    q: Odds = Field(
        0.5, description="in-out parameter: below 1, a walk prefers nodes that are not neighbours of the previous node"
    )


class Node2Vec(SkipGramLearner[Node2VecSettings]):
    name = "node2vec"
    title = "node2vec"
    summary = "skip-gram on second-order random walks, then logistic regression"
    settings_type = Node2VecSettings

    def bias(self, graph: DynamicGraph) -> Bias:
        return walk_bias(self.settings.p, self.settings.q, graph.directed)

"""The settings of methods that are trained by gradient; the defaults are the paper's (section 4.5, Algorithm 2)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from chronospike.config import AtLeastZero, Count, Dropout, Positive, Settings
from chronospike.errors import InputError

Selection = Annotated[
    Literal["macro_f1", "micro_f1", "last"],
    Field(description="validation score that selects the best epoch; 'last': use the last epoch"),
]


class TrainingSettings(Settings):
    """What the training loop reads."""

    epochs: Count = 100
    batch_size: Count = Field(1024, description="maximum number of nodes per batch")
    min_batches: Count = Field(1, description="minimum number of batches per epoch, if each has at least 32 nodes")
    accumulate: Count = Field(1, description="batches per optimiser step")
    learning_rate: Positive = 5e-3
    weight_decay: AtLeastZero = 1e-4
    schedule: Literal["constant", "cosine"] = "constant"
    clip: AtLeastZero = Field(1.0, description="maximum gradient norm; 0 turns clipping off")
    selection: Selection = "macro_f1"
    patience: Count = Field(10, description="stop after this many epochs without a better validation score")
    refit: bool = Field(
        False, description="afterwards, train again on training and validation nodes, for the best number of epochs"
    )
    weight_average: Dropout = Field(0.0, description="decay of the moving average of the weights; 0 turns it off")
    folds: Annotated[int, Field(ge=0, le=100)] = Field(
        0, description="number of networks, each trained without one fold of the labelled nodes; 0: one network"
    )
    second_stage: Literal["none", "auto", "logistic", "trees", "boosting", "mean"] = Field(
        "none", description="on top of the folds; 'auto': several, weighted by cross-validation on the labelled nodes"
    )
    calibrate: bool = Field(False, description="scale probabilities by a temperature fitted to held-out nodes")

    def check(self) -> None:
        super().check()
        if self.folds == 1:
            raise InputError("folds is 1: give at least 2, or 0 for a single network")
        if self.second_stage != "none" and not self.folds:
            raise InputError(f"second_stage={self.second_stage} needs folds: add --set folds=5")

    def batch_nodes(self, train: int) -> int:
        """Nodes a batch: `batch_size`, or fewer where a small training set would make too few batches an epoch."""
        return min(self.batch_size, max(32, -(-train // self.min_batches)))

"""Training again on all labelled nodes: the validation nodes say for how many epochs, and then are learned from too.

The first fit holds them out and finds the best epoch. The second begins anew from the same initial weights with all
the labels, on the same schedule, and stops after as many epochs. Whatever is chosen by the validation nodes later, and
the score on them, is the first model's: the second has seen their labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from chronospike.data.splits import Split
from chronospike.errors import InputError
from chronospike.nn.model import ChronoSpike
from chronospike.training.inference import Progress, infer
from chronospike.training.loop import Trainer
from chronospike.training.problem import Problem, new_model
from chronospike.training.smoothing import Values, choose_and_smooth


@dataclass(frozen=True)
class Fitted:
    """A trained model, and how it is to be used.

    Attributes:
        problem: what the model infers with; after a refit, one in which validation nodes are training nodes.
        split: the split of the labels before any refit.
        first: the model before the refit and its problem, if there was one and they are at hand.
    """

    model: ChronoSpike
    problem: Problem
    split: Split
    first: tuple[ChronoSpike, Problem] | None = None

    @property
    def is_refitted(self) -> bool:
        return is_refitted(self.problem.settings.refit, self.split)

    def until(self, last_step: int) -> Fitted:
        """The same model, to be used as of a step: see `Problem.until`."""
        seen = self.problem.graph.seen_by(last_step)
        train, validation = (part[seen[part]] for part in (self.split.train, self.split.validation))
        split = replace(self.split, train=train, validation=validation)
        first = None if self.first is None else (self.first[0], self.first[1].until(last_step))
        return Fitted(self.model, self.problem.until(last_step), split, first)

    def smoothed(self, probabilities: Values) -> tuple[Values, dict[str, float]]:
        """Correct and Smooth of the probabilities `[N, C]` of all nodes, and the strengths that it chose."""
        if self.is_refitted and self.first is None:
            raise InputError(
                "to smooth a run with refit, the checkpoint of its first fit is needed, and its folder checkpoint/ is "
                "gone"
            )
        graph, last = self.problem.graph, self.problem.steps[-1]
        train, validation = self.split.train, self.split.validation
        return choose_and_smooth(graph, probabilities, train, validation, self.first_probabilities(), last)

    def probabilities(self, on_nodes: Progress | None = None) -> Values:
        """Of all nodes `[N, C]`."""
        return _of_all(self.model, self.problem, on_nodes)

    def first_probabilities(self) -> Values | None:
        """Of all nodes, by the model that has not seen the validation labels; None where the model itself has not."""
        return _of_all(*self.first) if self.first is not None else None


def is_refitted(wanted: bool, split: Split) -> bool:
    """Whether there is a second fit: there is none where nothing was held out."""
    return wanted and len(split.validation) > 0


def second_trainer(first: Trainer) -> Trainer:
    """For the fit on all labels, with a new model."""
    problem = first.problem.with_all_labels()
    model = new_model(first.settings, problem.inputs.width, first.model.architecture.classes)
    return Trainer(model, problem, stop_after=first.state.best_epoch + 1)


def _of_all(model: ChronoSpike, problem: Problem, on_nodes: Progress | None = None) -> Values:
    nodes = np.arange(problem.graph.num_nodes)
    return infer(model, problem, nodes, on_nodes)[0].numpy().astype(np.float64)

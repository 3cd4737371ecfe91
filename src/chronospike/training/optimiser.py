"""AdamW on torch's fused kernel, with moments that are known by the names of their parameters.

It gives the bits of `torch.optim.AdamW(fused=True)`. That class imports torch's compiler when it is first made, which
takes longer than training a small graph does; the kernel itself needs none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

_BETAS, _EPSILON = (0.9, 0.999), 1e-8
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class AdamW:
    """Steps parameters that have a gradient, and leaves the others as they are.

    On a GPU the learning rate lies in a tensor, which a captured step reads at each replay.
    """

    def __init__(self, parameters: Iterable[tuple[str, nn.Parameter]], lr: float, weight_decay: float = 0.0) -> None:
        """`parameters` with their names, as `nn.Module.named_parameters` gives them; all on one device."""
        self.parameters = dict(parameters)
        self.weight_decay = weight_decay
        self.state = {name: _zero_moments(value) for name, value in self.parameters.items()}
        device = next(iter(self.parameters.values())).device
        self._rate: float | Tensor = torch.tensor(lr, device=device) if device.type == "cuda" else lr

    @property
    def learning_rate(self) -> float:
        return float(self._rate)

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        if isinstance(self._rate, Tensor):
            self._rate.fill_(value)
        else:
            self._rate = value

    @torch.no_grad()
    def step(self, found_inf: Tensor | None = None) -> None:
        """Take one step, unless `found_inf`, a number on the same device, is 1: then nothing changes."""
        gradients = {name: value.grad for name, value in self.parameters.items() if value.grad is not None}
        if not gradients:
            return
        steps, means, squares = ([self.state[name][moment] for name in gradients] for moment in MOMENTS)
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            [self.parameters[name] for name in gradients],
            list(gradients.values()),
            means,
            squares,
            [],
            steps,
            lr=self._rate,  # type: ignore[arg-type]
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            weight_decay=self.weight_decay,
            eps=_EPSILON,
            amsgrad=False,
            maximize=False,
            found_inf=found_inf,
        )
        if found_inf is not None:
            torch._foreach_sub_(steps, [found_inf] * len(steps))

    def zero_grad(self) -> None:
        for value in self.parameters.values():
            value.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        """The moments of every parameter, as `NAME.exp_avg` and so on."""
        return {f"{name}.{moment}": value for name, own in self.state.items() for moment, value in own.items()}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state_dict` gave. Parameters may also be named by their numbers, as torch's optimisers do;
        a moment that is missing is zero, as before the first step."""
        names, found = list(self.parameters), {}
        for key, value in tensors.items():
            name, _, moment = key.rpartition(".")
            found[f"{names[int(name)] if name.isdecimal() else name}.{moment}"] = value
        own = self.state_dict()
        unknown = sorted(found.keys() - own.keys())
        if unknown:
            raise KeyError(f"the optimiser has no '{unknown[0]}'")
        for key, tensor in own.items():
            if key not in found:
                tensor.zero_()
            elif found[key].shape != tensor.shape:
                raise ValueError(f"'{key}' has shape {list(found[key].shape)}, not {list(tensor.shape)}")
            else:
                tensor.copy_(found[key])


def _zero_moments(parameter: nn.Parameter) -> dict[str, Tensor]:
    step = torch.zeros((), dtype=torch.float32, device=parameter.device)
    shaped = [torch.zeros_like(parameter, requires_grad=False, memory_format=torch.preserve_format) for _ in range(2)]
    return dict(zip(MOMENTS, (step, *shaped), strict=True))

"""AdamW as in the paper (Sec. 4.2), and Muon, which learns a small network in fewer steps.

Muon (K. Jordan et al. 2024) steps along the momentum of a weight matrix with all its singular
values made about one, so that directions with small gradients are learned as fast as those with
large ones. PyTorch's own takes plain matrices only and leaves the rest to a second optimizer, where
Lightning runs one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

MIXING = (nn.Linear, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)
MIN_CHANNELS = 8  # images and regions are mostly fewer
MOMENTUM = 0.95
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of AdamW
TINY = 1e-7  # a momentum that has died away is not blown up
QUINTIC, QUINTIC_STEPS = (3.4445, -4.7750, 2.0315), 5  # Jordan's coefficients


def make_optimizer(
    name: str, network: nn.Module, *, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """The optimizer `name`, adamw or muon, of what the network trains."""
    trained = [p for p in network.parameters() if p.requires_grad]
    if name == "adamw":
        return torch.optim.AdamW(
            trained, lr=learning_rate, weight_decay=weight_decay, betas=BETAS, eps=EPSILON
        )
    return Muon(
        trained, matrices_of(network), learning_rate=learning_rate, weight_decay=weight_decay
    )


def matrices_of(network: nn.Module) -> set[Tensor]:
    """The weights that mix channels with channels: no norms, biases, positions, nor what reads or
    writes fewer."""
    layers = [module for module in network.modules() if isinstance(module, MIXING)]
    return {layer.weight for layer in layers if min(layer.weight.shape[:2]) >= MIN_CHANNELS}


class Muon(torch.optim.Optimizer):
    """Muon for `matrices`, AdamW for other parameters, at one rate: a step changes either by about
    as much."""

    def __init__(
        self,
        params: list[nn.Parameter],
        matrices: set[Tensor],
        *,
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        groups = [
            {"params": [p for p in params if p in matrices], "matrices": True},
            {"params": [p for p in params if p not in matrices], "matrices": False},
        ]
        filled = [group for group in groups if group["params"]]
        super().__init__(filled, {"lr": learning_rate, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            direction = muon_direction if group["matrices"] else adam_direction
            for p in group["params"]:
                if p.grad is not None:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.sub_(direction(p.grad, self.state[p]), alpha=group["lr"])
        return loss


def muon_direction(grad: Tensor, state: dict[str, Any]) -> Tensor:
    """The momentum, looked ahead after Nesterov, orthogonalized, at a root mean square of about
    one."""
    if not state:
        state["momentum"] = torch.zeros_like(grad)
    state["momentum"].lerp_(grad, 1 - MOMENTUM)
    matrix = grad.lerp(state["momentum"], MOMENTUM).flatten(
        1
    )  # of a convolution: out-channels by all that they see
    return orthogonalize(matrix).mul_(max(matrix.shape) ** 0.5).view_as(grad)


def adam_direction(grad: Tensor, state: dict[str, Any]) -> Tensor:
    """Adam's quotient of means (D. Kingma and J. Ba 2015)."""
    if not state:
        state.update(step=0, mean=torch.zeros_like(grad), square=torch.zeros_like(grad))
    state["step"] += 1
    corrections = [1 - beta ** state["step"] for beta in BETAS]
    state["mean"].lerp_(grad, 1 - BETAS[0])
    state["square"].lerp_(grad.square(), 1 - BETAS[1])
    return (state["mean"] / corrections[0]).div_(
        (state["square"] / corrections[1]).sqrt_().add_(EPSILON)
    )


def orthogonalize(matrix: Tensor) -> Tensor:
    """U V^T of the singular value decomposition, roughly: singular values come out between 0.68 and
    1.2.

    Those below about a thousandth of the norm come out smaller. A polynomial a s + b s^3 + c s^5 of
    them, repeated, needs matrix products only.
    """
    a, b, c = QUINTIC
    x = matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp(min=TINY)
    for _ in range(QUINTIC_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if matrix.shape[0] > matrix.shape[1] else x

"""AdamW as in the paper (Sec. 4.2), and Muon, which learns a small network in fewer steps.

Muon (K. Jordan et al. 2024) steps along the momentum of a weight matrix after it has made all
singular values about one. So directions with small gradients are learned as fast as those with
large ones. PyTorch's own Muon takes only plain matrices and needs a second optimizer for the rest,
but Lightning runs one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

MIXING = (nn.Linear, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)
MIN_CHANNELS = 8  # images and regions mostly have fewer
MOMENTUM = 0.95
BETAS = (0.9, 0.999)  # of AdamW
EPSILON = 1e-8  # of AdamW
TINY = 1e-7  # the least norm that a momentum is divided by
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's coefficients
QUINTIC_STEPS = 5


def make_optimizer(
    name: str, network: nn.Module, *, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """The optimizer `name`, adamw or muon, for the weights that are trained."""
    trained = [weight for weight in network.parameters() if weight.requires_grad]
    if name == "adamw":
        return torch.optim.AdamW(
            trained, lr=learning_rate, weight_decay=weight_decay, betas=BETAS, eps=EPSILON
        )
    return Muon(
        trained, matrices_of(network), learning_rate=learning_rate, weight_decay=weight_decay
    )


def matrices_of(network: nn.Module) -> set[Tensor]:
    """The weights that mix many channels with many channels. Norms, biases and positions do not."""
    layers = [module for module in network.modules() if isinstance(module, MIXING)]
    return {layer.weight for layer in layers if min(layer.weight.shape[:2]) >= MIN_CHANNELS}


class Muon(torch.optim.Optimizer):
    """Muon for `matrices`, and AdamW for other parameters.

    Both have one learning rate, because a step changes both by about as much.
    """

    def __init__(
        self,
        params: list[nn.Parameter],
        matrices: set[Tensor],
        *,
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        groups = [
            {"params": [weight for weight in params if weight in matrices], "matrices": True},
            {"params": [weight for weight in params if weight not in matrices], "matrices": False},
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
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.sub_(direction(weight.grad, self.state[weight]), alpha=group["lr"])
        return loss


def muon_direction(grad: Tensor, state: dict[str, Any]) -> Tensor:
    """Nesterov's momentum, orthogonalized and scaled to a root mean square of about one."""
    if not state:
        state["momentum"] = torch.zeros_like(grad)
    state["momentum"].lerp_(grad, 1 - MOMENTUM)
    ahead = grad.lerp(state["momentum"], MOMENTUM)
    matrix = ahead.flatten(1)  # (out channels, inputs of one output)
    return orthogonalize(matrix).mul_(max(matrix.shape) ** 0.5).view_as(grad)


def adam_direction(grad: Tensor, state: dict[str, Any]) -> Tensor:
    """Adam's quotient of means (D. Kingma and J. Ba, 2015)."""
    if not state:
        state.update(step=0, mean=torch.zeros_like(grad), square=torch.zeros_like(grad))
    state["step"] += 1
    corrections = [1 - beta ** state["step"] for beta in BETAS]
    state["mean"].lerp_(grad, 1 - BETAS[0])
    state["square"].lerp_(grad.square(), 1 - BETAS[1])
    root = (state["square"] / corrections[1]).sqrt_().add_(EPSILON)
    return (state["mean"] / corrections[0]).div_(root)


def orthogonalize(matrix: Tensor) -> Tensor:
    """About U V^T of the singular value decomposition: singular values become 0.68 to 1.2.

    Those below about a thousandth of the norm stay smaller. The polynomial a s + b s^3 + c s^5 is
    applied several times to the singular values. For X of few rows, a I + b X X^T + c (X X^T)^2 is
    a small matrix P, and a step is X <- P X. So the steps run on X X^T alone, and the long matrix
    is multiplied twice instead of ten times.
    """
    a, b, c = QUINTIC
    x = matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp(min=TINY)
    gram = x @ x.mT
    product = torch.eye(len(gram), dtype=x.dtype, device=x.device)  # of the P of all steps
    for _ in range(QUINTIC_STEPS):
        step = torch.addmm(b * gram, gram, gram, alpha=c)
        step.diagonal().add_(a)
        product = step @ product
        gram = step @ gram @ step
    x = product @ x
    return x.mT if matrix.shape[0] > matrix.shape[1] else x

"""Size checks and unused parameters, for systems that do not use the U-shape of nn/unet.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from factorizer.errors import FactorizerError
from factorizer.nn.matricize import AXES


def check_multiple(spatial_size: Sequence[int], stride: int, system: str) -> None:
    """Raise an error unless every axis is a multiple of the system's total stride."""
    if len(spatial_size) not in AXES:
        raise FactorizerError(f"spatial_size is {tuple(spatial_size)}; give 2 or 3 sizes")
    for axis, size in zip(AXES[len(spatial_size)], spatial_size, strict=True):
        if size < 1 or size % stride:
            valid = max(1, -(-size // stride)) * stride
            raise FactorizerError(
                f"axis {axis} has {size} voxels, not a multiple of {stride} as {system} needs; pad "
                f"to {valid}"
            )


def check_3d(spatial_size: Sequence[int], system: str) -> None:
    """Raise an error unless there are three sizes."""
    if len(spatial_size) != 3:
        raise FactorizerError(
            f"spatial_size is {tuple(spatial_size)}; {system} takes three sizes: it has no 2D form"
        )


def check_fixed_size(x: Tensor, shape: Sequence[int], system: str) -> None:
    """Raise an error unless x (B, C, *spatial) has the shape that the network was built for."""
    if tuple(x.shape[1:]) != tuple(shape):
        wanted = ", ".join(map(str, shape))
        raise FactorizerError(
            f"input has shape {tuple(x.shape)}; this {system} was built for (B, {wanted}) and "
            "takes no other"
        )


def freeze(model: nn.Module, names: Iterable[str]) -> None:
    """Turn off the gradients of parameters that the published network has but never uses.

    They are counted and saved as in the original. Distributed training would wait for their
    gradients.
    """
    for name in names:
        model.get_parameter(name).requires_grad_(False)

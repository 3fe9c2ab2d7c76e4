"""A network on a whole image, window by window (Sec. 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from monai.inferers.utils import sliding_window_inference
from torch import Tensor

from factorizer.data.patches import padding_of

Network = Callable[[Tensor], Tensor]


@torch.inference_mode()
def predict_probabilities(
    network: Network,
    image: Tensor,
    *,
    window: Sequence[int],
    overlap: float,
    blending: Literal["constant", "gaussian"],
    advance: Callable[[], object] = lambda: None,
) -> Tensor:
    """Image (C, *spatial) -> probabilities (regions, *spatial), on the image's device.

    An image smaller than the window is padded as in training. Where windows overlap, logits are averaged, all alike
    or weighted by a Gaussian; `advance` is called after each window.
    """
    padding = padding_of(image.shape[1:], window)
    flat = [n for pair in reversed(padding) for n in pair]
    padded = torch.nn.functional.pad(image, flat)[None]

    def predict(patch: Tensor) -> Tensor:
        y = network(patch)
        advance()
        return y

    logits = sliding_window_inference(padded, tuple(window), 1, predict, overlap=overlap, mode=blending)
    assert isinstance(logits, Tensor)
    inside = [slice(before, before + n) for (before, _), n in zip(padding, image.shape[1:], strict=True)]
    return logits[0][(slice(None), *inside)].sigmoid()

"""Train a small Swin Factorizer on synthetic lesions, then turn its layers down without retraining.

Takes about half a minute on a laptop CPU. `make demo` runs it.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from factorizer import NMF, build_model

SIZE = 32
STEPS = 80


def draw_lesions(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two noisy images (1, 2, 32, 32, 32) of a few bright balls, and the balls (1, 1, 32, 32, 32)."""
    grid = torch.stack(torch.meshgrid(*[torch.arange(float(SIZE))] * 3, indexing="ij"))
    centres = torch.rand(3, 3, 1, 1, 1, generator=generator) * SIZE
    radii = 3 + 4 * torch.rand(3, 1, 1, 1, generator=generator)
    lesion = ((grid - centres).square().sum(1).sqrt() < radii).any(0).float()
    noise = torch.randn(2, SIZE, SIZE, SIZE, generator=generator)
    image = torch.stack((lesion, 0.5 - 0.5 * lesion)) + 0.8 * noise
    return image[None], lesion[None, None]


def loss_of(logits: list[Tensor], target: Tensor) -> Tensor:
    """Soft Dice and cross-entropy at every supervised resolution."""
    total = torch.zeros(())
    for weight, logit in zip((1, 0.5, 0.25), logits, strict=False):
        truth = F.interpolate(target, logit.shape[2:], mode="nearest")
        p = logit.sigmoid()
        dice = (2 * (p * truth).sum() + 1e-5) / (p.square().sum() + truth.square().sum() + 1e-5)
        total = total + weight * (1 - dice + F.binary_cross_entropy_with_logits(logit, truth))
    return total


@torch.no_grad()
def evaluate(model: nn.Module) -> tuple[float, float]:
    """Mean Dice over ten unseen cases, and milliseconds per case."""
    generator = torch.Generator().manual_seed(1)
    model.eval()
    dice, seconds = [], 0.0
    for _ in range(10):
        image, target = draw_lesions(generator)
        start = time.perf_counter()
        mask = model(image) > 0
        seconds += time.perf_counter() - start
        dice.append((2 * (mask * target).sum() / (mask.sum() + target.sum())).item())
    return sum(dice) / len(dice), 100 * seconds


def main() -> None:
    console = Console()
    torch.manual_seed(0)
    model = build_model(
        "swin-factorizer", in_channels=2, out_channels=1, spatial_size=(SIZE,) * 3, widths=(16, 32, 64), window=4
    )
    count = sum(p.numel() for p in model.parameters())
    console.print(
        f"A Swin Factorizer of {count:,} parameters, on {SIZE} x {SIZE} x {SIZE} images of synthetic lesions."
    )
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    before, _ = evaluate(model)
    model.train()
    for _ in track(range(STEPS), description="training", console=console):
        image, target = draw_lesions(generator)
        loss = loss_of(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    table = Table("NMF layers", "Dice on unseen cases", "ms per case", title="After training, nothing retrained")
    layers = [module for module in model.modules() if isinstance(module, NMF)]
    settings: dict[str, dict[str, int]] = {
        "T = 5, as trained": {"num_iters": 5},
        "T = 2": {"num_iters": 2},
        "bypassed": {"bypass": True},
    }
    table.add_row("before training", f"{before:.3f}", "")
    for name, setting in settings.items():
        for layer in layers:
            for attribute, value in setting.items():
                setattr(layer, attribute, value)
        dice, milliseconds = evaluate(model)
        table.add_row(name, f"{dice:.3f}", f"{milliseconds:.0f}")
    console.print(table)


if __name__ == "__main__":
    main()

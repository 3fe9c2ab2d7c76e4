"""Time and peak memory of a forward pass and of a training step, on the CPU of this machine.

Times are taken in one process. Every round times all systems one after the other, and systems are
compared by their ratios inside a round, so that a slow moment of the machine cancels. Memory is
the peak of a fresh process minus what it held after its imports (Linux only).

`python -m factorizer.profiling.measure SYSTEM OPTIONS MODE` is that fresh process: it prints MiB.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from factorizer.hardware import held_bytes, peak_bytes
from factorizer.nn.pool import KEPT as KEPT  # bytes that the pool may hold beside a network

MODES = ("forward", "training")
Step = Callable[[], None]
Advance = Callable[[], object]
Seconds = dict[str, list[float]]


def make_step(network: nn.Module, x: Tensor, mode: str) -> Step:
    """One forward pass without gradients ("forward"), or a forward and a backward pass."""

    def forward() -> None:
        with torch.no_grad():
            network.eval()(x)

    def train() -> None:
        outputs = network.train()(x)
        outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
        gradients = [y.detach() for y in outputs]  # those of half the sum of squares
        torch.autograd.backward(outputs, gradients)
        network.zero_grad()
        x.grad = None

    return forward if mode == "forward" else train


def time_interleaved(steps: Mapping[str, Step], rounds: int, advance: Advance) -> Seconds:
    """The seconds of every step in every round, after one round to warm up.

    `advance` is called after each measurement.
    """
    seconds: Seconds = {name: [] for name in steps}
    for index in range(rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if index:
                seconds[name].append(time.perf_counter() - start)
            advance()
    return seconds


def ratio(seconds: Seconds, name: str, to: str) -> float:
    """The time of the step `name` over that of `to`: the median over the rounds."""
    pairs = zip(seconds[name], seconds[to], strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs)


def peak_mib(build: Callable[[], Step]) -> float:
    """MiB that this process needs beyond what it holds now, to build a step and run it once."""
    held = held_bytes()
    build()()
    return (peak_bytes() - held) / 2**20


def peak_mib_of_system(name: str, options: Mapping[str, Any], mode: str) -> float | None:
    """`peak_mib` of a registered system in a fresh process; None if it ran out of memory."""
    # -P: nothing is imported from the working directory
    program = [sys.executable, "-P", "-m", "factorizer.profiling.measure"]
    command = [*program, name, json.dumps(options), mode]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return float(done.stdout.splitlines()[-1])
    if done.returncode == -9 or "alloc" in done.stderr:  # killed by the system, or refused by it
        return None
    raise RuntimeError(f"measuring the memory of {name} failed:\n{done.stderr[-2000:]}")


def make_input(options: Mapping[str, Any]) -> Tensor:
    """An image of noise for a network of these options: (1, in_channels, *spatial_size)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, options["in_channels"], *options["spatial_size"], generator=generator)


def main(name: str, options_json: str, mode: str) -> None:
    """What the fresh process does."""
    from factorizer.models.registry import build_model, builder_of

    builder_of(name)  # its imports are not billed to the network
    options = json.loads(options_json)
    print(peak_mib(lambda: make_step(build_model(name, **options), make_input(options), mode)))


if __name__ == "__main__":
    main(*sys.argv[1:])

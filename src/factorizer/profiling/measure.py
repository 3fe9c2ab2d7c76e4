"""Time and peak memory of a forward pass and of a training step, on the CPU of this machine.

Times are taken in one process, the systems one after the other in every round, and compared as
ratios inside a round: the machine's mood then cancels. Memory is the peak of a fresh process minus
what it held after its imports (Linux only).
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from factorizer.nn.memory import KEPT as KEPT  # the pool may hold so much beside a network

MODES = ("forward", "training")
Step = Callable[[], None]
Advance = Callable[[], object]
Seconds = dict[str, list[float]]


def make_step(network: nn.Module, x: Tensor, mode: str) -> Step:
    """One forward pass without gradients, or one forward and backward pass."""
    if mode == "forward":

        def step() -> None:
            with torch.no_grad():
                network.eval()(x)

    else:

        def step() -> None:
            outputs = network.train()(x)
            outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
            torch.autograd.backward(
                outputs, [y.detach() for y in outputs]
            )  # that of half their squares
            network.zero_grad()
            x.grad = None

    return step


def time_interleaved(steps: Mapping[str, Step], rounds: int, advance: Advance) -> Seconds:
    """Seconds of every step in every round, after one round to warm up."""
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
    """How many times the time of `to` the step `name` takes: the median over the rounds."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[to], strict=True))


def peak_mib(build: Callable[[], Step]) -> float:
    """MiB that building and running one step takes in this process, beyond what it holds now."""
    held = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    build()()
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    return (peak - held) / 2**20


def peak_mib_of_system(name: str, options: Mapping[str, Any], mode: str) -> float | None:
    """`peak_mib` of a registered system in a fresh process; None when that process was out of
    memory."""
    # -P: what lies in the working directory is not imported
    command = [
        sys.executable,
        "-P",
        "-m",
        "factorizer.profiling.measure",
        name,
        json.dumps(options),
        mode,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return float(done.stdout.splitlines()[-1])
    if done.returncode == -9 or "alloc" in done.stderr:  # killed by the system, or refused by it
        return None
    raise RuntimeError(f"measuring the memory of {name} failed:\n{done.stderr[-2000:]}")


def make_input(options: Mapping[str, Any]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, options["in_channels"], *options["spatial_size"], generator=generator)


if __name__ == "__main__":
    from importlib import import_module

    from factorizer.models.registry import SYSTEMS, build_model

    system, text, mode_wanted = sys.argv[1:]
    wanted = json.loads(text)
    import_module(SYSTEMS[system].builder.split(":")[0])  # not billed to the network
    print(
        peak_mib(lambda: make_step(build_model(system, **wanted), make_input(wanted), mode_wanted))
    )

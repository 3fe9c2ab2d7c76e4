"""Time and memory of the Swin Factorizer beside the textbook and four MONAI networks.

Times and memory are measured as `factorizer profile --measure` does. `make bench` writes
docs/results/speed.md and speed.json. `--sizes 64` takes minutes, 128 about half an hour.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from factorizer import NMF, ShiftedWindowMatricize, WrappedNMF, build_model
from factorizer.hardware import cpu_model
from factorizer.profiling.measure import (
    MODES,
    Seconds,
    Step,
    make_step,
    peak_mib,
    ratio,
    time_interleaved,
)
from testkit import textbook

WINDOW = {64: 4, 128: 8}
OURS = "Swin Factorizer"
MONAI = ("DynUNet", "SegResNet", "UNETR", "SwinUNETR")
SYSTEMS = (OURS, "textbook", *MONAI)


def make_network(name: str, size: int, window: int) -> nn.Module:
    """A network from 4 to 3 channels, without dropout."""
    if name == OURS:
        return build_model(
            "swin-factorizer",
            in_channels=4,
            out_channels=3,
            spatial_size=(size,) * 3,
            window=window,
        )
    if name == "textbook":
        return textbook.SwinFactorizer(4, 3, size, head_dim=8, window=window, mlp_ratio=2)
    from monai.networks import nets

    network: nn.Module
    if name == "DynUNet":
        network = nets.DynUNet(
            3, 4, 3, [3] * 5, [1, 2, 2, 2, 2], [2] * 4, filters=[32, 64, 128, 256, 512]
        )
    elif name == "SegResNet":
        network = nets.SegResNet(
            init_filters=32,
            in_channels=4,
            out_channels=3,
            blocks_down=(1, 2, 2, 4),
            blocks_up=(1, 1, 1),
        )
    elif name == "UNETR":
        network = nets.UNETR(4, 3, (size,) * 3, feature_size=32)
    else:
        network = nets.SwinUNETR(in_channels=4, out_channels=3, feature_size=48)
    return network


def time_with_bar(steps: dict[str, Step], rounds: int, progress: Progress, title: str) -> Seconds:
    """`time_interleaved` with a bar."""
    task = progress.add_task(title, total=(rounds + 1) * len(steps))
    return time_interleaved(steps, rounds, lambda: progress.advance(task))


def time_layer(rounds: int, progress: Progress) -> dict[str, Any]:
    """Wrapped NMF alone, C = 32, 64^3, window 8. Both get their input in the layout they use."""
    torch.manual_seed(0)
    x = torch.randn(1, 32, 64, 64, 64)
    layers = {
        OURS: (
            WrappedNMF(32, ShiftedWindowMatricize(8, 8), NMF(), spatial_size=(64,) * 3),
            torch.channels_last_3d,
        ),
        "textbook": (textbook.WrappedNMF(32, 8, 8), torch.contiguous_format),
    }
    result: dict[str, Any] = {}
    for mode in MODES:
        steps = {
            name: make_step(layer, x.contiguous(memory_format=layout).requires_grad_(), mode)
            for name, (layer, layout) in layers.items()
        }
        seconds = time_with_bar(steps, 3 * rounds, progress, f"wrapped NMF, {mode}")
        result[mode] = {"seconds": seconds, "textbook_ratio": ratio(seconds, "textbook", OURS)}
    return result


def time_networks(size: int, rounds: int, progress: Progress) -> dict[str, Any]:
    """Every network at one size: rounds of forward passes, then rounds of training steps."""
    torch.manual_seed(0)
    x = torch.randn(1, 4, size, size, size)
    networks = {name: make_network(name, size, WINDOW[size]) for name in SYSTEMS}
    parameters = {name: count_parameters(network) for name, network in networks.items()}
    result: dict[str, Any] = {"parameters": parameters}
    for mode in MODES:
        steps = {name: make_step(network, x, mode) for name, network in networks.items()}
        seconds = time_with_bar(steps, rounds, progress, f"networks at {size}^3, {mode}")
        ratios = {name: ratio(seconds, name, OURS) for name in SYSTEMS}
        result[mode] = {"seconds": seconds, "ratio": ratios}
    return result


def count_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def time_scaling(rounds: int, progress: Progress) -> dict[str, Any]:
    """Our network at 128^3 against 64^3, window 8 both times."""
    torch.manual_seed(0)
    result: dict[str, Any] = {}
    for mode in MODES:
        steps = {}
        for size in (64, 128):
            network, x = make_network(OURS, size, 8), torch.randn(1, 4, size, size, size)
            steps[str(size)] = make_step(network, x, mode)
        seconds = time_with_bar(steps, rounds, progress, f"scaling, {mode}")
        result[mode] = {"seconds": seconds, "ratio": ratio(seconds, "128", "64")}
    return result


def peak_memory(name: str, size: int, mode: str) -> float:
    """`peak_mib` in a fresh process."""
    command = [sys.executable, __file__, "--measure-memory", name, str(size), mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def measure_memory(name: str, size: int, mode: str) -> float:
    """What the fresh process does."""
    if name in MONAI:
        import monai.networks.nets  # noqa: F401
    x = torch.randn(1, 4, size, size, size)
    return peak_mib(lambda: make_step(make_network(name, size, WINDOW[size]), x, mode))


def run(sizes: list[int], rounds: int) -> dict[str, Any]:
    """All measurements, as they are written to speed.json."""
    results: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": f"{cpu_model()}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}",
        "rounds": rounds,
    }
    half = max(2, rounds // 2)
    with Progress(console=Console(stderr=True)) as progress:
        results["memory_mib"] = peak_memories(sizes, progress)
        results["layer"] = time_layer(rounds, progress)
        for size in sizes:
            networks = time_networks(size, rounds if size < 128 else half, progress)
            results[f"networks_{size}"] = networks
        if 128 in sizes:
            results["scaling"] = time_scaling(half, progress)
    return results


def peak_memories(sizes: list[int], progress: Progress) -> dict[str, Any]:
    """MiB by size, mode and system."""
    task = progress.add_task("memory", total=len(sizes) * len(MODES) * len(SYSTEMS))
    peaks: dict[str, Any] = {}
    for size in sizes:
        peaks[str(size)] = {}
        for mode in MODES:
            of_mode = peaks[str(size)][mode] = {}
            for name in SYSTEMS:
                of_mode[name] = peak_memory(name, size, mode)
                progress.advance(task)
    return peaks


def floors(results: dict[str, Any]) -> list[tuple[str, float, str, bool]]:
    """What the project promises about these figures: (what, figure, floor, met)."""
    rows: list[tuple[str, float, str, bool]] = []

    def at_least(what: str, value: float, floor: float) -> None:
        rows.append((what, value, f"at least {floor:g}", value >= floor))

    for mode, floor in zip(MODES, (5, 4), strict=True):
        at_least(
            f"wrapped NMF alone, {mode}: textbook / ours",
            results["layer"][mode]["textbook_ratio"],
            floor,
        )
    for size in (64, 128):
        networks = results.get(f"networks_{size}")
        if networks is None:
            continue
        for mode in MODES:
            ratios = networks[mode]["ratio"]
            at_least(f"{size}^3 {mode}: textbook / ours", ratios["textbook"], 3)
            fastest = min(MONAI, key=lambda name: ratios[name])
            at_least(
                f"{size}^3 {mode}: fastest MONAI network ({fastest}) / ours", ratios[fastest], 1
            )
        memory = results["memory_mib"][str(size)]["training"]
        at_least(f"{size}^3 training memory: DynUNet / ours", memory["DynUNet"] / memory[OURS], 1)
    for mode in MODES if "scaling" in results else ():
        value = results["scaling"][mode]["ratio"]
        rows.append((f"{mode}: 128^3 / 64^3, window 8", value, "at most 9", value <= 9))
    return rows


def report(results: dict[str, Any]) -> str:
    """The text of speed.md."""
    lines = [
        "# Speed and memory",
        "",
        f"`make bench`, {results['date']}, on {results['machine']}. Times are medians over "
        f"{results['rounds']} interleaved rounds (half as many at 128^3, three times as many for "
        "the layer); ratios are medians of the ratios inside a round. Memory is the peak of a "
        "fresh process less what its imports hold. Batch 1, 4 to 3 channels, no dropout.",
        "",
        "| what | figure | floor | met |",
        "|---|---|---|---|",
    ]
    for what, value, floor, met in floors(results):
        lines.append(f"| {what} | {value:.2f} | {floor} | {'yes' if met else '**no**'} |")
    for size in (64, 128):
        if f"networks_{size}" in results:
            memory = results["memory_mib"][str(size)]
            lines += report_networks(size, results[f"networks_{size}"], memory)
    layer = results["layer"]
    lines += report_times("Wrapped NMF alone, 32 channels, 64^3, window 8", layer, unit="")
    if "scaling" in results:
        lines += report_times("Swin Factorizer, window 8", results["scaling"], unit="^3")
    return "\n".join(lines) + "\n"


def report_networks(size: int, networks: dict[str, Any], memory: dict[str, Any]) -> list[str]:
    """The table of all networks at one size."""
    lines = [
        "",
        f"## {size} x {size} x {size}, window {WINDOW[size]}",
        "",
        "| network | parameters | forward, s | / ours | training step, s | / ours | forward, "
        "MiB | training, MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in SYSTEMS:
        cells = [f"{networks['parameters'][name] / 1e6:.2f} M"]
        for mode in MODES:
            cells.append(f"{statistics.median(networks[mode]['seconds'][name]):.3f}")
            cells.append(f"{networks[mode]['ratio'][name]:.2f}")
        cells += [f"{memory[mode][name]:.0f}" for mode in MODES]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    controls = []
    for mode in MODES:
        control = ratio(networks[mode]["seconds"], "textbook", "DynUNet")
        controls.append(f"{control:.2f} ({mode})")
    return [*lines, "", f"The textbook takes {' and '.join(controls)} times the time of DynUNet."]


def report_times(title: str, times: dict[str, Any], *, unit: str) -> list[str]:
    """A table of the seconds of both modes; `unit` follows each name."""
    lines = ["", f"## {title}", "", "| | forward, s | training step, s |", "|---|---|---|"]
    for name in times["forward"]["seconds"]:
        medians = [statistics.median(times[mode]["seconds"][name]) for mode in MODES]
        cells = " | ".join(f"{seconds:.3f}" for seconds in medians)
        lines.append(f"| {name}{unit} | {cells} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", choices=(64, 128), default=[64, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "docs" / "results", help="folder of the two files"
    )
    parser.add_argument(
        "--measure-memory", nargs=3, metavar=("NETWORK", "SIZE", "MODE"), help=argparse.SUPPRESS
    )
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="monai")
    torch.set_num_threads(2)
    if args.measure_memory:
        name, size, mode = args.measure_memory
        print(measure_memory(name, int(size), mode))
        return
    results = run(args.sizes, args.rounds)
    text = report(results)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "speed.json").write_text(json.dumps(results, indent=2) + "\n")
    (args.out / "speed.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()

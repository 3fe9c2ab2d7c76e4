"""Ablate a trained model: turn its NMF layers down, without training again (Fig. 8)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from torch import nn

from factorizer.errors import FactorizerError
from factorizer.figures.ablations import draw_ablation
from factorizer.files import FileError, csv_text, read_csv, read_json, write_atomically
from factorizer.inspection.settings import (
    Point,
    Setting,
    matrix_sizes,
    paper_settings,
    settable_layers,
)
from factorizer.progress import SILENT, Progress
from factorizer.studies.bench import Bench, make_bench

TRAINED = "as trained"
REMEDY = "remove it, or give another folder"


@dataclass(frozen=True)
class Ablation:
    """The points of an ablation, the models as they were trained by name, and the files."""

    points: Sequence[Point]
    references: Mapping[str, Point]
    files: Sequence[Path]

    @property
    def rows(self) -> list[Point]:
        """All points, the baseline last."""
        others = [point for point in self.references.values() if point not in self.points]
        return [*self.points, *others]


def ablate(
    model: str | Path,
    data: Path,
    *,
    out: Path,
    baseline: str | Path | None = None,
    iterations: int = 20,
    limit: int | None = None,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Ablation:
    """Measure a trained model with layers kept or removed, other iterations and other ranks.

    Every point is written when it is measured. A second call with the same folder resumes.

    Args:
        model: A fold of a Factorizer, RUN or RUN/foldK.
        data: The data set that it was trained on. Its held-out cases are scored.
        out: The folder for points.csv and ablation.png.
        baseline: A fold of another system, for a dashed line in the figure.
        iterations: The largest number of iterations T.
        limit: How many of the held-out cases are used. Otherwise all are.
        device: auto, cpu, cuda or mps.
        progress: Where lines and bars go.

    Example:
        >>> ablation = factorizer.ablate(model, data, out=Path("ablation"))  # doctest: +SKIP
        >>> ablation.references["as trained"].dice  # doctest: +SKIP
        0.88
    """
    if iterations < 1:
        raise FactorizerError(f"iterations is {iterations}; it must be at least 1")
    bench = make_bench(model, data, device=device, limit=limit)
    settings = list_settings(bench, iterations)
    other = None
    if baseline is not None:
        other = make_bench(baseline, data, device=device, limit=limit)
        check_baseline(bench, other)
    files = [out / "points.csv"]
    points = measure_points(bench, settings, files[0], progress=progress)
    references = {TRAINED: next(point for point in points if point.study == TRAINED)}
    if other is not None:
        name = f"baseline ({other.predictor.preset.model.name})"
        files.append(out / f"baseline-{fingerprint(other.network)}.csv")
        (references[name],) = measure_points(
            other, [Setting(name, 0, ())], files[1], beside=bench, progress=progress
        )
    figure = out / "ablation.png"
    write_atomically(figure, draw_ablation(points, references))
    return Ablation(points, references, [*files, figure])


def list_settings(bench: Bench, iterations: int) -> list[Setting]:
    """The network as trained, and the settings of the paper's Fig. 8."""
    preset = bench.predictor.preset
    layers = len(settable_layers(bench.network))
    limits = matrix_sizes(bench.network, preset.in_channels, preset.data.patch_size)
    trained = Setting(TRAINED, 0, ({},) * layers)
    return [
        trained,
        *paper_settings(layers, preset.model.head_dim, limits, iterations=iterations),
    ]


def check_baseline(bench: Bench, other: Bench) -> None:
    """Refuse a baseline whose Dice, time and FLOPs of a patch cannot be compared."""
    ours, theirs = bench.predictor.preset.data, other.predictor.preset.data
    for field in ("channels", "patch_size", "labels", "regions"):
        wanted, found = getattr(ours, field), getattr(theirs, field)
        if found != wanted:
            raise FactorizerError(
                f"the baseline has the {field} {found}, not {wanted}; give a run of the same preset"
            )
    if other.names != bench.names:
        raise FactorizerError(
            "the baseline and the model hold out different cases; give a run of the same split and "
            "fold"
        )


def measure_points(
    bench: Bench,
    settings: Sequence[Setting],
    file: Path,
    *,
    beside: Bench | None = None,
    progress: Progress = SILENT,
) -> list[Point]:
    """Measure the settings that the file does not have yet. Each is written when it is done.

    Times are compared with those of the network as trained, or of the one `beside` it.
    """
    check_origin(bench, file.with_suffix(".json"))
    points = read_points(file)
    done = {(point.study, point.value) for point in points}
    missing = [setting for setting in settings if (setting.study, setting.value) not in done]
    for setting in progress.track(missing, "settings"):
        points.append(bench.measure(setting, beside))
        write_points(file, points)
    return points


def check_origin(bench: Bench, file: Path) -> None:
    """Refuse to mix the points with those of another model or device, or of other cases."""
    now = {
        "weights": fingerprint(bench.network),
        "cases": bench.names,
        "device": bench.predictor.device.type,
    }
    if not file.exists():
        write_atomically(file, json.dumps(now, indent=1) + "\n")
        return
    before = read_json(file)
    if not isinstance(before, dict):
        raise FileError(file, "it does not say what was measured", REMEDY)
    changed = [name for name in now if now[name] != before.get(name)]
    if changed:
        raise FactorizerError(
            f"{file.parent} was started with different {' and '.join(changed)}; give another folder"
        )


def fingerprint(network: nn.Module) -> str:
    """A checksum of the weights."""
    weights = hashlib.blake2b(digest_size=8)
    for value in network.state_dict().values():
        weights.update(value.cpu().numpy().tobytes())
    return weights.hexdigest()


def write_points(file: Path, points: Sequence[Point]) -> None:
    columns = [field.name for field in fields(Point)]
    write_atomically(file, csv_text(columns, map(astuple, points)))


def read_points(file: Path) -> list[Point]:
    """The points of a table. None of a file that does not exist."""
    if not file.is_file():
        return []
    return [parse_point(file, number, cells) for number, cells in read_csv(file)]


def parse_point(file: Path, number: int, cells: Mapping[str, str]) -> Point:
    """The point in a line of a table."""
    kinds: dict[str, Any] = {"int": int, "float": float, "str": str}
    values: dict[str, Any] = {}
    for field in fields(Point):
        try:
            values[field.name] = kinds[str(field.type)](cells.get(field.name, ""))
        except ValueError as error:
            message = f"line {number} is not a point of an ablation ({field.name}: {error})"
            raise FileError(file, message, REMEDY) from None
    return Point(**values)

"""`factorizer ablate inference`: a trained network with its layers turned down, nothing retrained
(Fig. 8)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from factorizer.errors import FactorizerError
from factorizer.files import FileError, csv_text, read_csv, read_json, write_atomically
from factorizer.inspection.settings import Point, Setting
from factorizer.studies.bench import Bench

Track = Callable[[Sequence[Any], str], Iterable[Any]]


def run_ablation(
    bench: Bench,
    settings: Sequence[Setting],
    file: Path,
    track: Track,
    *,
    beside: Bench | None = None,
) -> list[Point]:
    """Measure every setting, each written down when it is done: a second call goes on with what is
    missing.

    Times are over those of the network as trained, or of the one `beside` it.
    """
    check_origin(bench, file.with_suffix(".json"))
    points = read_points(file)
    done = {(point.study, point.value) for point in points}
    for setting in track([s for s in settings if (s.study, s.value) not in done], "settings"):
        points.append(bench.measure(setting, beside))
        write_points(file, points)
    return points


def check_baseline(bench: Bench, other: Bench) -> None:
    """Dice, time and FLOPs of a window mean the same for both."""
    ours, theirs = bench.predictor.preset.data, other.predictor.preset.data
    for what in ("channels", "patch_size", "labels", "regions"):
        values = getattr(ours, what), getattr(theirs, what)
        if values[0] != values[1]:
            raise FactorizerError(
                f"the baseline has the {what} {values[1]}, not {values[0]}; give a run of the same "
                "preset"
            )
    if other.names != bench.names:
        raise FactorizerError(
            "the baseline holds out other cases than the run; give a run of the same split and fold"
        )


def fingerprint(network: nn.Module) -> str:
    """Of its weights."""
    weights = hashlib.blake2b(digest_size=8)
    for value in network.state_dict().values():
        weights.update(value.cpu().numpy().tobytes())
    return weights.hexdigest()


def check_origin(bench: Bench, file: Path) -> None:
    """Points of another model, device or of other cases are not mixed with these."""
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
        raise FileError(
            file, "it does not say what was measured", "remove it, or give another folder"
        )
    changed = [name for name in now if now[name] != before.get(name)]
    if changed:
        raise FactorizerError(
            f"{file.parent} was begun with other {' and '.join(changed)}; give another folder"
        )


def write_points(file: Path, points: Sequence[Point]) -> None:
    columns = [field.name for field in fields(Point)]
    write_atomically(
        file, csv_text(columns, [[getattr(point, name) for name in columns] for point in points])
    )


def read_points(file: Path) -> list[Point]:
    if not file.is_file():
        return []
    try:
        lines = [line for _, line in read_csv(file)]
        return [
            Point(**{f.name: convert(f.type, line[f.name]) for f in fields(Point)})
            for line in lines
        ]
    except (KeyError, ValueError) as error:
        raise FactorizerError(
            f"{file} is not a table of an ablation ({error}); remove it, or give another folder"
        ) from None


def convert(kind: Any, text: str) -> Any:
    return {"int": int, "float": float}.get(str(kind), str)(text)

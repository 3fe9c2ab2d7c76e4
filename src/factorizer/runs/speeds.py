"""Speeds: named settings of the NMF layers that make a trained model faster.

speeds.json has, for each speed, a list with one entry per NMF layer along the data path. An entry
has the values that differ from the model as it was trained: num_iters, rank or bypass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from factorizer.errors import ModelError
from factorizer.files import read_json, write_atomically

AS_TRAINED = "best"
REMEDY = "tune the model again"
Speed = Sequence[Mapping[str, Any]]  # the changes of each NMF layer


def write_speeds(file: Path, speeds: Mapping[str, Speed]) -> None:
    content = {name: [dict(layer) for layer in layers] for name, layers in speeds.items()}
    write_atomically(file, json.dumps(content, indent=1) + "\n")


def read_speed(file: Path, name: str, model: str) -> list[dict[str, Any]]:
    """The settings of a speed, layer by layer. `model` is how messages name the model."""
    speeds = read_json(file) if file.is_file() else {}
    if not isinstance(speeds, dict):
        raise ModelError(f"{model}/{file.name} holds no speeds by name; {REMEDY}")
    if name not in speeds:
        known = ", ".join([AS_TRAINED, *speeds])
        raise ModelError(
            f"{model} has the speeds {known}, not {name}; `factorizer tune` makes balanced and fast"
        )
    layers = speeds[name]
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        raise ModelError(f"{model}/{file.name} holds no list of layers for {name}; {REMEDY}")
    return layers

"""Trained models, ready to segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from factorizer.config.networks import network_of
from factorizer.errors import FactorizerError, ModelError
from factorizer.hardware import choose_device
from factorizer.inference.predictor import Predictor
from factorizer.nn.blocks import nmf_layers
from factorizer.nn.nmf import NMF
from factorizer.progress import SILENT, Progress
from factorizer.runs.find import Wanted, find_folds
from factorizer.runs.fold import Fold
from factorizer.runs.speeds import AS_TRAINED
from factorizer.runs.weights import Weights, fit_heads, is_same_kind, load_strictly, read_weights


def load(
    model: str | Path,
    *,
    folds: Wanted = None,
    device: str = "auto",
    mirrored: bool = False,
    speed: str = AS_TRAINED,
    batch_size: int = 1,
    progress: Progress = SILENT,
) -> Predictor:
    """Load a trained model.

    Args:
        model: RUN, RUN/foldK or zoo:NAME.
        folds: "all" or some numbers, for an ensemble of a run's folds.
        device: auto, cpu, cuda or mps.
        mirrored: Average over mirror images, along the axes that were mirrored in training.
        speed: best is as trained. Others exist after `factorizer tune`.
        batch_size: How many patches are predicted at a time.
        progress: Where remarks about the model go.

    Returns:
        A `Predictor`, which segments arrays and cases.

    Example:
        >>> import numpy as np
        >>> predictor = factorizer.load("zoo:hippocampus", device="cpu")
        >>> image = np.random.default_rng(0).random((1, 35, 50, 36))  # (C, X, Y, Z)
        >>> predictor.predict(image, spacing_mm=(1.0, 1.0, 1.0)).shape
        (35, 50, 36)
    """
    return load_ensemble(
        find_folds(model, folds),
        device=device,
        mirrored=mirrored,
        speed=speed,
        batch_size=batch_size,
        progress=progress,
    )


def load_ensemble(
    folds: Sequence[Fold],
    *,
    device: str,
    mirrored: bool,
    speed: str,
    batch_size: int,
    progress: Progress,
) -> Predictor:
    """The networks of some folds as one predictor."""
    first = folds[0]
    networks = []
    for fold in folds:
        same_data = fold.preset.data == first.preset.data
        if not same_data or fold.preset.inference != first.preset.inference:
            raise ModelError(
                f"{fold.name} and {first.name} have different presets (data or inference); they "
                "cannot be an ensemble"
            )
        network = load_network(fold, progress)
        if speed != AS_TRAINED:
            apply_speed(network, fold, speed)
        networks.append(network)
    return Predictor(
        first.preset,
        networks,
        device=choose_device(device),
        mirrored=mirrored,
        batch_size=batch_size,
    )


def load_network(fold: Fold, progress: Progress = SILENT) -> nn.Module:
    """The network of a fold with its weights."""
    try:
        network = network_of(fold.preset)
    except FactorizerError as error:
        raise ModelError(
            f"{fold.name}/{fold.config_file.name} describes a network that cannot be built: {error}"
        ) from None
    weights, remark = fit_heads(network, read_weights(fold))
    if remark:
        progress.say(f"{fold.name}: {remark}")
    load_strictly(network, weights, fold.name)
    return network


def apply_speed(network: nn.Module, fold: Fold, speed: str) -> None:
    """Turn the NMF layers of a network down, as a speed of its fold says."""
    settings = fold.speed(speed)
    file = f"{fold.name}/{fold.speeds_file.name}"
    layers = nmf_layers(network)
    if len(layers) != len(settings):
        raise ModelError(
            f"{file} sets {len(settings)} NMF layers, the network has {len(layers)}; tune the "
            "model again"
        )
    for layer, setting in zip(layers, settings, strict=True):
        turn_down(layer, setting, file)


def turn_down(layer: NMF, setting: Mapping[str, Any], file: str) -> None:
    """Apply a setting to a layer. `file` says where it comes from."""
    for attribute, value in setting.items():
        allowed = allowed_settings(layer, attribute)
        if not allowed:
            raise ModelError(
                f"{file} sets {attribute!r} of a layer; it can set num_iters, rank and bypass"
            )
        if type(value) is not type(allowed[0]) or value not in allowed:
            limits = f"{allowed[0]} to {allowed[-1]}"
            raise ModelError(
                f"{file} sets {attribute} of a layer to {value!r}; give {limits}, or tune the "
                "model again"
            )
        setattr(layer, attribute, value)


def allowed_settings(layer: NMF, attribute: str) -> Sequence[bool] | range:
    """The values that a speed may give to an attribute. It turns a layer down, never up."""
    if attribute == "bypass":
        return (False, True)
    if attribute in ("num_iters", "rank"):
        return range(1, getattr(layer, attribute) + 1)
    return ()


def load_what_fits(network: nn.Module, weights: Weights) -> tuple[list[str], list[str]]:
    """Load the weights that have the name and the shape of a network's.

    Return the names of the weights that were loaded, and of those that stay as they were drawn.
    """
    own = network.state_dict()
    fits: Weights = {}
    for name, value in weights.items():
        if name in own and is_same_kind(value, own[name]):
            fits[name] = value
    network.load_state_dict(fits, strict=False)
    return sorted(fits), sorted(own.keys() - fits.keys())

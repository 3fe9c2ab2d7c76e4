"""Trained models from where they are kept: runs, single folds of them, and the zoo that ships with the package.

A fold's folder has config.yaml and checkpoints/last.ckpt; a zoo model has config.yaml and weights.safetensors. Reading
either executes nothing that is in the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from factorizer.config import Preset, build_options
from factorizer.data.folds import read_fold_of
from factorizer.inference.predictor import Predictor
from factorizer.inference.zoo import ModelError, zoo_folder
from factorizer.models.registry import build_model
from factorizer.nn.nmf import NMF
from factorizer.preset_files import ZOO, load_preset

PREFIX = "network."  # of the network's weights in a checkpoint
Weights = dict[str, Tensor]


def load(
    source: str | Path,
    *,
    folds: Literal["all"] | Sequence[int] | None = None,
    device: str = "auto",
    mirrored: bool = False,
    speed: str = "best",
    batch_size: int = 1,
) -> Predictor:
    """A model ready to segment, from a run (RUN or RUN/foldK) or from the zoo (zoo:NAME).

    Of a run with several folds say which: "all", or some numbers, are an ensemble. `speed` is best, as trained, or a
    faster setting that was tuned for it.
    """
    folders = find_models(source, folds)
    preset = load_preset(folders[0] / "config.yaml")
    networks = []
    for folder in folders:
        own = load_preset(folder / "config.yaml")
        if own.data != preset.data or own.inference != preset.inference:
            raise ModelError(f"{folder} was trained on other data settings than {folders[0]}; they make no ensemble")
        network = make_network(own)
        load_strictly(network, read_weights(folder), folder)
        if speed != "best":
            apply_speed(network, folder, speed)
        networks.append(network)
    return Predictor(preset, networks, device=choose_device(device), mirrored=mirrored, batch_size=batch_size)


def find_models(source: str | Path, folds: Literal["all"] | Sequence[int] | None = None) -> list[Path]:
    """The folders of the models that are meant."""
    text = str(source)
    if text.startswith(ZOO):
        if folds is not None:
            raise ModelError(f"{text} is one model; leave out the folds")
        return [zoo_folder(text.removeprefix(ZOO))]
    run = Path(source)
    if (run / "config.yaml").is_file():
        if folds is not None:
            raise ModelError(f"{run} is one fold; leave out the folds, or give the folder above it")
        return [run]
    there = {int(p.name[4:]): p for p in run.glob("fold*") if p.name[4:].isdigit() and (p / "config.yaml").is_file()}
    if not there and folds is None and (run / "foldall" / "config.yaml").is_file():
        return [run / "foldall"]  # trained on all cases
    if not there:
        raise ModelError(f"there is no run in {run}; give a folder that `factorizer train` wrote, or {ZOO}NAME")
    listed = ", ".join(map(str, sorted(there)))
    if folds is None:
        if len(there) > 1:
            raise ModelError(f"{run} has the folds {listed}; give one as {run}/foldK (predict also takes --folds all)")
        return list(there.values())
    wanted = sorted(there) if folds == "all" else folds
    missing = [fold for fold in wanted if fold not in there]
    if missing or not wanted:
        raise ModelError(f"{run} has the folds {listed}, not {', '.join(map(str, missing)) or 'none'}")
    return [there[int(fold)] for fold in wanted]


def trained_on(folders: Sequence[Path]) -> set[str]:
    """The cases that some of these folds were trained on, or what they began with. A model of the zoo says so itself;
    nothing is known of a fold that was copied out of its run."""
    seen: set[str] = set()
    for folder in folders:
        if (folder / "trained_on.json").is_file():
            seen |= set(json.loads((folder / "trained_on.json").read_text()))
        folds, known = folder.parent / "folds.json", folder / "cases.json"
        if folds.is_file() and known.is_file():
            held_out = {case for case, fold in read_fold_of(folds).items() if folder.name == f"fold{fold}"}
            seen |= set(json.loads(known.read_text())) - held_out
        starts = json.loads((folder / "run.json").read_text()) if (folder / "run.json").is_file() else []
        if starts and starts[0].get("init"):
            with suppress(ModelError):  # it may be gone
                seen |= trained_on(find_models(starts[0]["init"]))
    return seen


def read_weights(folder: Path) -> Weights:
    """The network's weights of a fold or of a zoo model: the last ones, which scores are from."""
    safe, checkpoint = folder / "weights.safetensors", folder / "checkpoints" / "last.ckpt"
    if safe.is_file():
        from safetensors.torch import load_file

        return load_file(safe)
    if not checkpoint.is_file():
        raise ModelError(f"{folder} has no checkpoints/last.ckpt; train it first")
    try:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"]
    except Exception as error:  # bytes of any kind raise errors of any kind
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{checkpoint} cannot be read ({reason}); train with --resume, or copy it again") from None
    return {name.removeprefix(PREFIX): value for name, value in state.items()}


def load_strictly(network: nn.Module, weights: Weights, origin: Path) -> None:
    """Load weights that must be exactly the network's."""
    own = network.state_dict()
    wrong = sorted(own.keys() ^ weights.keys()) + [
        f"{name} is {tuple(weights[name].shape)}, not {tuple(own[name].shape)}"
        for name in own.keys() & weights.keys()
        if weights[name].shape != own[name].shape
    ]
    if wrong:
        raise ModelError(
            f"the weights of {origin} are not those of its config.yaml ({wrong[0]}"
            f"{f' and {len(wrong) - 1} more' if len(wrong) > 1 else ''}); restore the one or the other"
        )
    network.load_state_dict(weights)


def apply_speed(network: nn.Module, folder: Path, speed: str) -> None:
    """Turn NMF layers down as speeds.json of a model says: per speed, a list of settings, one for each layer."""
    file = folder / "speeds.json"
    speeds = json.loads(file.read_text()) if file.is_file() else {}
    if speed not in speeds:
        known = ", ".join(["best", *speeds])
        raise ModelError(f"{folder} has the speeds {known}, not {speed}; `factorizer tune` makes balanced and fast")
    layers = [module for module in network.modules() if isinstance(module, NMF)]
    if len(layers) != len(speeds[speed]):
        raise ModelError(f"{file} sets {len(speeds[speed])} NMF layers, the network has {len(layers)}; tune it again")
    for layer, settings in zip(layers, speeds[speed], strict=True):
        for name, value in settings.items():
            if name not in ("num_iters", "rank", "bypass"):
                raise ModelError(f"{file} sets {name!r} of a layer; num_iters, rank and bypass can be set")
            setattr(layer, name, value)


def load_what_fits(network: nn.Module, weights: Weights) -> tuple[list[str], list[str]]:
    """Load the weights that have the same name and shape; the names of those loaded and of those left as drawn."""
    own = network.state_dict()
    fits = {name: value for name, value in weights.items() if name in own and own[name].shape == value.shape}
    network.load_state_dict(fits, strict=False)
    return sorted(fits), sorted(own.keys() - fits.keys())


def make_network(preset: Preset) -> nn.Module:
    """The preset's network with weights drawn from its seed."""
    name = preset.model.name
    torch.manual_seed(preset.training.seed)
    return build_model(name, **build_options(preset, name))


def choose_device(name: str) -> torch.device:
    """auto is CUDA or MPS where there is one; a device that is not there is an error."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(device for device in ("cuda", "mps", "cpu") if there[device]))
    if name not in there:
        raise ModelError(f"the device is {name!r}; choose auto, cpu, cuda or mps")
    if not there[name]:
        raise ModelError(f"there is no {name} device here; `factorizer doctor` lists what there is")
    return torch.device(name)

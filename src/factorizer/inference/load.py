"""Trained models from where they are kept: runs, single folds of them, and the zoo that ships with
the package.

A fold's folder has config.yaml and checkpoints/last.ckpt; a zoo model has config.yaml and
weights.safetensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from torch import nn

from factorizer.config import Preset, build_options
from factorizer.data.folds import read_fold_of
from factorizer.files import FileError, read_json
from factorizer.hardware import choose_device
from factorizer.inference.predictor import Predictor
from factorizer.inference.weights import Weights, fit_heads, is_alike, load_strictly, read_weights
from factorizer.inference.zoo import ModelError, display_name, read_config, zoo_folder
from factorizer.models.build import build_network
from factorizer.nn.blocks import nmf_layers
from factorizer.nn.nmf import NMF
from factorizer.preset_files import ZOO

Say = Callable[[str], object]


def be_silent(text: str) -> None:
    pass


def load(
    source: str | Path,
    *,
    folds: Literal["all"] | Sequence[int] | None = None,
    device: str = "auto",
    mirrored: bool = False,
    speed: str = "best",
    batch_size: int = 1,
    say: Say = be_silent,
) -> Predictor:
    """A model ready to segment, from a run (RUN or RUN/foldK) or from the zoo (zoo:NAME).

    Of a run with several folds say which: "all", or some numbers, are an ensemble. `speed` is best,
    as trained, or a faster setting that was tuned for it.
    """
    folders = find_models(source, folds)
    preset = read_config(folders[0])
    networks = []
    for folder in folders:
        own, name = read_config(folder), display_name(folder)
        if own.data != preset.data or own.inference != preset.inference:
            raise ModelError(
                f"{name} was trained on other data settings than {display_name(folders[0])}; they "
                "make no ensemble"
            )
        network = load_network(folder, own, say)
        if speed != "best":
            apply_speed(network, folder, speed)
        networks.append(network)
    return Predictor(
        preset, networks, device=choose_device(device), mirrored=mirrored, batch_size=batch_size
    )


def load_network(folder: Path, preset: Preset, say: Say) -> nn.Module:
    """The network of a model with its weights."""
    name = display_name(folder)
    try:
        options = build_options(preset, preset.model.name)
        network = build_network(preset.model.name, options, seed=preset.training.seed)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ModelError(
            f"{name}/config.yaml describes a network that cannot be built: {error}"
        ) from None
    weights, remark = fit_heads(network, read_weights(folder))
    if remark:
        say(f"{name}: {remark}")
    load_strictly(network, weights, name)
    return network


def find_models(
    source: str | Path, folds: Literal["all"] | Sequence[int] | None = None
) -> list[Path]:
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
    named = [p for p in run.glob("fold*") if p.name[4:].isdecimal()]
    there = {int(p.name[4:]): p for p in named if (p / "config.yaml").is_file()}
    if not there and folds is None and (run / "foldall" / "config.yaml").is_file():
        return [run / "foldall"]  # trained on all cases
    if not there:
        raise ModelError(
            f"there is no run in {run}; give a folder that `factorizer train` wrote, or {ZOO}NAME"
        )
    listed = ", ".join(map(str, sorted(there)))
    if folds is None:
        if len(there) > 1:
            raise ModelError(
                f"{run} has the folds {listed}; give one as {run}/foldK (predict also takes "
                "--folds all)"
            )
        return list(there.values())
    wanted = sorted(there) if folds == "all" else folds
    missing = [fold for fold in wanted if fold not in there]
    if missing or not wanted:
        raise ModelError(
            f"{run} has the folds {listed}, not {', '.join(map(str, missing)) or 'none'}"
        )
    return [there[int(fold)] for fold in wanted]


def trained_on(folders: Sequence[Path], looked_at: Collection[Path] = ()) -> set[str]:
    """The cases that some of these folds were trained on, or what they began with. A model of the
    zoo says so itself; nothing is known of a fold that was copied out of its run."""
    seen: set[str] = set()
    for folder in folders:
        told = folder / "trained_on.json"
        if told.is_file():
            seen |= set(read_names(told, list))
        folds, known = folder.parent / "folds.json", folder / "cases.json"
        if folds.is_file() and known.is_file():
            held_out = {
                case for case, fold in read_fold_of(folds).items() if folder.name == f"fold{fold}"
            }
            seen |= set(read_names(known, dict)) - held_out
        init = first_weights_of(folder)
        if init and folder not in looked_at:  # runs that name each other would never end
            with suppress(ModelError):  # it may be gone
                seen |= trained_on(find_models(init), [*looked_at, folder])
    return seen


def read_names(file: Path, kind: type[list[Any]] | type[dict[str, Any]]) -> list[str]:
    """The names of cases in a list, or those that a table in JSON has entries for."""
    content = read_json(file)
    if not isinstance(content, kind) or not all(isinstance(name, str) for name in content):
        raise FileError(file, "it does not hold names of cases", "restore it, or remove it")
    return list(content)


def first_weights_of(folder: Path) -> str | None:
    """Which model a run began with (--init), as run.json of its folder says."""
    file = folder / "run.json"
    starts = read_json(file) if file.is_file() else []
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise FileError(file, "it does not hold a list of starts", "restore it, or remove it")
    init = starts[0].get("init") if starts else None
    if not isinstance(init, str | None):
        raise FileError(
            file, f"its first start has the init {init!r}, not a name", "restore it, or remove it"
        )
    return init


def apply_speed(network: nn.Module, folder: Path, speed: str) -> None:
    """Turn NMF layers down as speeds.json of a model says: per speed, a list of settings, one for
    each layer."""
    settings, file = read_speed(folder, speed), f"{display_name(folder)}/speeds.json"
    layers = nmf_layers(network)
    if len(layers) != len(settings):
        raise ModelError(
            f"{file} sets {len(settings)} NMF layers, the network has {len(layers)}; tune it again"
        )
    for layer, setting in zip(layers, settings, strict=True):
        for attribute, value in setting.items():
            allowed = allowed_settings(layer, attribute)
            if not allowed:
                raise ModelError(
                    f"{file} sets {attribute!r} of a layer; num_iters, rank and bypass can be set"
                )
            if type(value) is not type(allowed[0]) or value not in allowed:
                limits = f"{allowed[0]} to {allowed[-1]}"
                raise ModelError(
                    f"{file} sets {attribute} of a layer to {value!r}; give {limits}, or tune it "
                    "again"
                )
            setattr(layer, attribute, value)


def read_speed(folder: Path, speed: str) -> list[dict[str, Any]]:
    """The settings of a speed, layer by layer."""
    name, file = display_name(folder), folder / "speeds.json"
    speeds = read_json(file) if file.is_file() else {}
    if not isinstance(speeds, dict):
        raise ModelError(f"{name}/speeds.json holds no speeds by name; tune it again")
    if speed not in speeds:
        known = ", ".join(["best", *speeds])
        raise ModelError(
            f"{name} has the speeds {known}, not {speed}; `factorizer tune` makes balanced and fast"
        )
    settings = speeds[speed]
    if not isinstance(settings, list) or not all(isinstance(setting, dict) for setting in settings):
        raise ModelError(f"{name}/speeds.json holds no list of layers for {speed}; tune it again")
    return settings


def allowed_settings(layer: NMF, attribute: str) -> Sequence[bool] | range:
    """What a speed may set an attribute of a layer to: it turns a layer down, never up."""
    if attribute == "bypass":
        return (False, True)
    return range(1, getattr(layer, attribute) + 1) if attribute in ("num_iters", "rank") else ()


def load_what_fits(network: nn.Module, weights: Weights) -> tuple[list[str], list[str]]:
    """Load the weights that have the same name and shape; the names of those loaded and of those
    left as drawn."""
    own = network.state_dict()
    fits = {
        name: value for name, value in weights.items() if name in own and is_alike(value, own[name])
    }
    network.load_state_dict(fits, strict=False)
    return sorted(fits), sorted(own.keys() - fits.keys())

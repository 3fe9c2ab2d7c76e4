"""What a training begins with: the network, its first weights, and the learning rates."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from torch import nn

from factorizer.config import Preset, Training
from factorizer.config.networks import network_of
from factorizer.data.cases import list_some
from factorizer.errors import RunError
from factorizer.inference.load import load_what_fits
from factorizer.inference.sliding import Sliding
from factorizer.nn.unet import UNet
from factorizer.preset_files import ZOO
from factorizer.progress import Progress
from factorizer.runs.find import find_fold, find_folds, trained_on
from factorizer.runs.fold import Fold
from factorizer.runs.weights import read_weights
from factorizer.training.activations import checkpoint_activations
from factorizer.training.machine import Machine
from factorizer.training.module import Segmentation
from factorizer.training.schedule import warmup_for


def settle_init(fold: Fold, init: str | None) -> str | None:
    """The model whose weights a fold begins with. A fold that is resumed keeps its own."""
    wanted = init if init is None or init.startswith(ZOO) else str(Path(init).absolute())
    if not fold.starts():
        return wanted
    before = fold.first_weights()
    if wanted not in (None, before):
        raise RunError(
            f"{fold.path} began with the weights of {before}; leave out init, or give another "
            "folder"
        )
    return before


def warn_of_known_cases(init: str, held_out: Sequence[str], progress: Progress) -> None:
    """Warn if a first model was trained on cases that are to be held out."""
    known = len(trained_on(find_folds(init)) & set(held_out))
    if known:
        progress.say(
            f"{known} of the {len(held_out)} held-out cases have names of cases that {init} was "
            "trained on: if they are the same, scores will be too good; give a fold that held them "
            "out"
        )


def make_module(
    preset: Preset, machine: Machine, init: str | None, progress: Progress
) -> Segmentation:
    """The network with its loss, optimizer and schedule."""
    training, inference = preset.training, preset.inference
    warmup = warmup_for(training.max_steps, training.warmup_steps)
    say_what_is_shortened(training, warmup, progress)
    network = network_of(preset)
    check_outputs(network, training)
    if init is not None:
        initialize(network, init, progress)
    averaged = deepcopy(network) if training.average_weights else None
    if machine.checkpoint_activations:
        checkpoint_activations(network)
    return Segmentation(
        network,
        averaged=averaged,
        average_weights=training.average_weights,
        regions=list(preset.data.regions),
        optimizer=training.optimizer,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        max_steps=training.max_steps,
        warmup_steps=warmup,
        supervision_weights=training.deep_supervision_weights,
        dice_epsilon=training.dice_epsilon,
        sliding=Sliding(preset.data.patch_size, inference.overlap, inference.blending),
        threshold=inference.threshold,
        seed=training.seed,
    )


def say_what_is_shortened(training: Training, warmup: int, progress: Progress) -> None:
    """Say it if a short training changes the validation or the warm-up."""
    if training.validate_every > training.max_steps:
        progress.say(
            f"validation is at the end, after {training.max_steps} steps (validate_every is "
            f"{training.validate_every})"
        )
    if warmup < training.warmup_steps:
        progress.say(
            f"warm-up is cut from {training.warmup_steps} to {warmup} steps, a tenth of "
            f"{training.max_steps}"
        )


def check_outputs(network: nn.Module, training: Training) -> None:
    """Refuse a network with more outputs than there are weights of the loss."""
    weights = training.deep_supervision_weights
    if isinstance(network, UNet) and len(network.heads) > len(weights):
        raise RunError(
            f"the model has {len(network.heads)} outputs, but there are {len(weights)} weights; "
            "give training.deep_supervision_weights one for each"
        )


def initialize(network: nn.Module, source: str, progress: Progress) -> None:
    """Load a trained model's weights where they fit, and say which do not."""
    loaded, drawn = load_what_fits(network, read_weights(find_fold(source)))
    # a bias or a seed may fit by chance
    matrices = {name for name, weight in network.named_parameters() if weight.ndim > 1}
    if not matrices & set(loaded):
        raise RunError(
            f"no weight of {source} fits this network; give a model of the same system and widths"
        )
    progress.say(f"loaded from {source}: {len(loaded)} of {len(loaded) + len(drawn)} weights")
    progress.say(f"drawn at random: {list_some(drawn) or 'none'}")

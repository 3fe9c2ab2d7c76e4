"""The weights of a fold. Reading executes nothing in a file, and notices changed bytes.

A model of the zoo has weights.safetensors and its checksum in weights.sha256, in the form of
`sha256sum`. Another fold has checkpoints/last.ckpt. PyTorch writes it as a zip archive with a
CRC-32 of each part, which PyTorch itself does not check.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import torch
from torch import Tensor, nn

from factorizer.errors import ModelError
from factorizer.files import read_text
from factorizer.preset_files import CONFIG
from factorizer.runs.fold import Fold
from factorizer.runs.zoo import sha256_of

# the network's weights in a checkpoint, and their running average, which is used if it exists
LAST, AVERAGED = "network.", "averaged."
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
Weights = dict[str, Tensor]


def read_weights(fold: Fold) -> Weights:
    """The last weights of a fold. Its scores come from them."""
    if fold.weights_file.is_file():
        verify_checksum(fold)
        file, content = fold.weights_file, read_safetensors(fold)
    elif fold.last_checkpoint.is_file():
        file, content = fold.last_checkpoint, read_last_checkpoint(fold)
    else:
        raise ModelError(f"{fold.name} has no {inside(fold, fold.last_checkpoint)}; train it first")
    for name, value in content.items():
        fault = find_fault(value)
        if fault:
            raise ModelError(
                f"{fold.name}/{inside(fold, file)} cannot be used: {name} {fault}; "
                f"{remedy_for(fold)}"
            )
    return content


def inside(fold: Fold, file: Path) -> str:
    """A file by its path inside the fold."""
    return str(file.relative_to(fold.path))


def read_safetensors(fold: Fold) -> Weights:
    from safetensors.torch import load_file

    try:
        return load_file(fold.weights_file)
    except Exception as error:  # bytes of any kind raise errors of any kind
        raise unreadable(fold, fold.weights_file, error) from None


def read_last_checkpoint(fold: Fold) -> Weights:
    """The weights in a fold's last checkpoint."""
    file = fold.last_checkpoint
    try:
        verify_archive(file)
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes of any kind raise errors of any kind
        raise unreadable(fold, file, error) from None
    state = checkpoint.get("state_dict") if isinstance(checkpoint, dict) else None
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ModelError(f"{file} holds no weights by name (state_dict); {remedy_for(fold)}")
    if not any(name.startswith(AVERAGED) for name in state):
        return {name.removeprefix(LAST): value for name, value in state.items()}
    averaged = {name: value for name, value in state.items() if not name.startswith(LAST)}
    return {name.removeprefix(AVERAGED): value for name, value in averaged.items()}


def unreadable(fold: Fold, file: Path, error: Exception) -> ModelError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return ModelError(
        f"{fold.name}/{inside(fold, file)} cannot be read ({reason}); {remedy_for(fold)}"
    )


def remedy_for(fold: Fold) -> str:
    """How to get good weights again."""
    if fold.last_checkpoint.is_file():
        return "resume its training, or copy it again"
    return "install the package again" if fold.is_in_zoo else "copy the folder again"


def verify_archive(file: Path) -> None:
    """Raise if the bytes of a checkpoint have changed, or would need more memory than the file."""
    with ZipFile(file) as archive:
        parts = archive.infolist()
        if any(part.compress_type != ZIP_STORED for part in parts):
            raise ValueError("it is compressed, and checkpoints are not")
        if sum(part.file_size for part in parts) > file.stat().st_size:
            raise ValueError("its parts are larger than the file")
        changed = archive.testzip()
        if changed is not None:
            raise ValueError(f"its part {changed} has changed since it was written")


def verify_checksum(fold: Fold) -> None:
    """Raise if weights.safetensors is not the file that weights.sha256 was written for."""
    weights, checksum = fold.weights_file.name, fold.checksum_file.name
    if not fold.checksum_file.is_file():
        raise ModelError(
            f"{fold.name} has no {checksum}, the checksum of its weights; {remedy_for(fold)}"
        )
    with fold.named_errors():
        written = read_text(fold.checksum_file, most_bytes=1000).split()
    if written[:1] != [sha256_of(fold.weights_file)]:
        raise ModelError(
            f"{fold.name}/{weights} does not match its checksum in {checksum}; {remedy_for(fold)}"
        )


def find_fault(value: Any) -> str:
    """Why a value cannot be a weight. Empty if it can."""
    if not isinstance(value, Tensor):
        return f"is of the type {type(value).__name__}, not a tensor"
    is_plain = value.layout == torch.strided and value.device.type == "cpu"
    if not is_plain or value.dtype not in FLOATS + WHOLE:
        return f"is {value.dtype} ({value.layout}, {value.device}), not plain numbers"
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return f"has the shape {tuple(value.shape)}, for which the file has too few numbers"
    unusable = value.numel() - int(torch.isfinite(value).sum())
    if unusable:
        return f"has {unusable:,} of {value.numel():,} values that are NaN or infinite"
    return ""


def load_strictly(network: nn.Module, weights: Weights, origin: str) -> None:
    """Load weights that must be exactly the network's."""
    own = network.state_dict()
    wrong = [f"{name} is missing" for name in sorted(own.keys() - weights.keys())]
    wrong += [f"the network has no {name}" for name in sorted(weights.keys() - own.keys())]
    for name in sorted(own.keys() & weights.keys()):
        if weights[name].shape != own[name].shape:
            wrong.append(f"{name} is {tuple(weights[name].shape)}, not {tuple(own[name].shape)}")
        elif not is_same_kind(weights[name], own[name]):
            wrong.append(f"{name} is {weights[name].dtype}, not {own[name].dtype}")
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ModelError(
            f"the weights of {origin} do not fit its {CONFIG} ({wrong[0]}{more}); restore one "
            "of the two"
        )
    network.load_state_dict(weights)


def is_same_kind(one: Tensor, other: Tensor) -> bool:
    """Whether two weights have the same shape, and are both floats or both whole numbers."""
    return one.shape == other.shape and one.is_floating_point() == other.is_floating_point()


def fit_heads(network: nn.Module, weights: Weights) -> tuple[Weights, str]:
    """Weights with the heads of deep supervision that a network has, and a remark if they had
    others.

    A prediction comes from the first head, which has the full resolution. The others may be missing
    or too many.
    """
    own = network.state_dict()
    missing = {name: own[name] for name in own if is_auxiliary(name) and name not in weights}
    unknown = {name for name in weights if is_auxiliary(name) and name not in own}
    kept = {name: value for name, value in weights.items() if name not in unknown}
    remark = ""
    if missing or unknown:
        saved = "without" if missing else "with"
        remark = (
            f"its weights were saved {saved} deep supervision, contrary to {CONFIG}; "
            "predictions are the same"
        )
    return kept | missing, remark


def is_auxiliary(name: str) -> bool:
    """Whether a weight is of a head that only training uses."""
    parts = name.split(".")
    return parts[0] == "heads" and parts[1:2] != ["0"]

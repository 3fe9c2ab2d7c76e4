"""The network that a preset describes. This is the only module of `config` that imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from factorizer.config.preset import Preset, build_options
from factorizer.errors import FactorizerError
from factorizer.models.build import build_network
from factorizer.models.registry import build_model

TOO_LARGE = ("overflow", "too large", "allocate", "unpack")  # PyTorch's words for such sizes
SHOWN = 200  # characters of an error that is not ours


def network_of(preset: Preset) -> nn.Module:
    """The preset's network with weights drawn from its seed."""
    name = preset.model.name
    with building_errors(preset, name):
        return build_network(name, build_options(preset, name), seed=preset.training.seed)


def build_system(preset: Preset, name: str) -> nn.Module:
    """The system `name` as the preset describes it. Its weights follow from no seed."""
    with building_errors(preset, name):
        return build_model(name, **build_options(preset, name))


@contextmanager
def building_errors(preset: Preset, name: str) -> Iterator[None]:
    """Name the field to change if a network cannot be built, or cannot compute a patch.

    The values in `model.extra` are not checked beforehand, so any layer may fail on them. All other
    fields are. An error that neither `extra` nor the size explains is a bug, and stays as it is.
    """
    try:
        yield
    except FactorizerError:
        raise
    except Exception as error:  # PyTorch and MONAI raise errors of many kinds for wrong options
        if is_too_large(error):
            raise FactorizerError(
                f"a network of model.widths {list(preset.model.widths)} on data.patch_size "
                f"{list(preset.data.patch_size)} is too large to be computed; lower them"
            ) from error
        extra = preset.model.extra if name == preset.model.name else {}
        if not extra:
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN]
        raise FactorizerError(
            f"{name} cannot be built with model.extra, which sets {', '.join(extra)} ({reason}); "
            "correct its values, or leave them out"
        ) from error


def is_too_large(error: Exception) -> bool:
    """Whether an error is about the size of a network."""
    if isinstance(error, MemoryError):
        return True
    is_torch = isinstance(error, RuntimeError | TypeError | OverflowError)
    return is_torch and any(sign in str(error) for sign in TOO_LARGE)

"""The model section of a preset: a system and its options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from factorizer.config.fields import (
    Count,
    Depths,
    Dropout,
    Iterations,
    Probability,
    Section,
    Stride,
    Voxels,
    Widths,
    optional,
)
from factorizer.models.registry import check_name

MOST_EXTRA = 2**16
FROM_DATA = {"in_channels", "out_channels", "spatial_size"}  # keywords that follow from the data


class Model(Section):
    """Each field is a keyword of the systems' builders. A system ignores those it does not have."""

    name: str = optional("swin-factorizer", "name of the system; `factorizer models` lists them")
    widths: Widths = optional(
        (32, 64, 128, 256, 512), "channels of each level; the last is the bridge"
    )
    depths: Depths | None = optional(None, "blocks of each level; null means one")
    strides: Stride | tuple[Stride | tuple[Stride, ...], ...] = optional(
        2, "downsampling between levels: one number, one per step, or one per step and axis"
    )
    window: Voxels | tuple[Voxels, ...] = optional(
        8, "side P of an NMF window in voxels (Local, Swin and Conv-Factorizer)"
    )
    head_dim: Count = optional(8, "channels E of a head (Factorizers and Performer)")
    rank: Count = optional(1, "rank R of the factorization (Factorizers)")
    num_iters: Iterations = optional(5, "iterations T of the factorization (Factorizers)")
    solver: Literal["hals", "mu", "semi", "convex", "greedy", "joint"] = optional(
        "hals", "how the factorization is updated (Factorizers); the paper has hals and mu"
    )
    tolerance: Probability = optional(
        0.1, "relative error at which the solver greedy stops adding terms"
    )
    mixer: Literal["nmf", "none"] = optional(
        "nmf", "nmf, or none to leave out the NMF sub-block (Factorizers)"
    )
    mlp_ratio: Annotated[float, Field(ge=0, le=100)] = optional(
        2.0,
        "hidden channels of the MLP divided by its input channels; 0 leaves out the MLP "
        "(the paper's Factorizers and Performer)",
    )
    dropout: Dropout = optional(0.0, "dropout rate (Factorizers and Performer)")
    position_embedding: bool = optional(
        True, "learned position embedding in the bridge (the paper's Factorizers and Performer)"
    )
    deep_supervision: bool = optional(True, "train on outputs at the three highest resolutions")
    extra: dict[str, Any] = optional(
        {}, "further keywords of the system's builder, such as {feature_size: 24} for unetr"
    )

    @model_validator(mode="after")
    def check_system(self) -> Self:
        check_name(self.name)
        taken = FROM_DATA & set(self.extra)
        if taken:
            raise ValueError(
                f"extra sets {', '.join(sorted(taken))}, which follow from the data section; leave "
                "them out"
            )
        for option, value in self.extra.items():
            check_extra(option, value)
        return self


def check_extra(option: str, value: Any) -> None:
    """Refuse huge numbers in a keyword that only the system's builder knows."""
    if isinstance(value, list | tuple):
        for part in value:
            check_extra(option, part)
    elif isinstance(value, int | float) and option != "seed" and not abs(value) <= MOST_EXTRA:
        raise ValueError(f"extra sets {option} beyond {MOST_EXTRA:,}; give a smaller number")


def model_options(model: Model, name: str, known: Iterable[str]) -> dict[str, Any]:
    """The keywords for the builder of system `name`, which has the options `known`.

    `extra` counts only for the preset's own system.
    """
    fields = {field: getattr(model, field) for field in known if field in Model.model_fields}
    return fields | model.extra if name == model.name else fields

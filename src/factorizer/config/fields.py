"""The fields of a preset: types with bounds, and how a field gets its text. Imports neither torch
nor NumPy.

Every number has bounds. They are wider than any sensible use, so a typing error is named before it
exhausts the machine.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MOST_STEPS = 10**8
MOST_LEVELS = 12


class Section(BaseModel):
    """A group of fields. It cannot be changed, and it refuses fields that it does not have."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def optional(default: Any, description: str) -> Any:
    """A field that a preset may leave out. The description is help text and YAML comment."""
    return Field(default=default, description=description)


def required(description: str) -> Any:
    """A field that every preset must have."""
    return Field(description=description)


def section(of: type[Section], description: str) -> Any:
    """A group of fields that a preset may leave out."""
    return Field(default_factory=of, description=description)


def refuse_descending(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError("give the lower end first")
    return value


Range = tuple[float, float]  # the lower end first
Ascending = AfterValidator(refuse_descending)

Probability = Annotated[float, Field(ge=0, le=1)]
Degrees = Annotated[float, Field(ge=-360, le=360)]
Scale = Annotated[float, Field(ge=0.1, le=10)]
Zoom = Annotated[float, Field(ge=0.05, le=1)]
Sigma = Annotated[float, Field(gt=0, le=20)]
Factor = Annotated[float, Field(ge=1e-3, le=1e3)]
Intensity = Annotated[float, Field(ge=-1e12, le=1e12)]
Variance = Annotated[float, Field(ge=0, le=1e12)]
Displacement = Annotated[float, Field(ge=0, le=400)]
Distance = Annotated[float, Field(ge=0.5, le=1000)]
SpacingMm = Annotated[float, Field(ge=0.05, le=100)]
Weight = Annotated[float, Field(ge=0, le=1e3)]
AverageShare = Annotated[float, Field(ge=0, lt=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
LearningRate = Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)]

DegreesRange = Annotated[tuple[Degrees, Degrees], Ascending]
ScaleRange = Annotated[tuple[Scale, Scale], Ascending]
SigmaRange = Annotated[tuple[Sigma, Sigma], Ascending]
FactorRange = Annotated[tuple[Factor, Factor], Ascending]
IntensityRange = Annotated[tuple[Intensity, Intensity], Ascending]
VarianceRange = Annotated[tuple[Variance, Variance], Ascending]
DisplacementRange = Annotated[tuple[Displacement, Displacement], Ascending]

ZoomRange = Annotated[tuple[Zoom, Zoom], Ascending]

LabelValue = Annotated[int, Field(ge=1, le=255)]
Steps = Annotated[int, Field(gt=0, le=MOST_STEPS)]
WarmupSteps = Annotated[int, Field(ge=0, le=MOST_STEPS)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Count = Annotated[int, Field(gt=0, le=4096)]
Iterations = Annotated[int, Field(gt=0, le=1000)]
FoldCount = Annotated[int, Field(ge=2, le=10_000)]
Voxels = Annotated[int, Field(ge=1, le=4096)]  # along an axis
Blocks = Annotated[int, Field(ge=1, le=100)]
Stride = Annotated[int, Field(ge=1, le=64)]
Axis = Annotated[int, Field(ge=0, le=2)]

Sizes = Annotated[tuple[Voxels, ...], Field(min_length=2, max_length=3)]
Widths = Annotated[tuple[Count, ...], Field(min_length=1, max_length=MOST_LEVELS)]
Depths = Annotated[tuple[Blocks, ...], Field(min_length=1, max_length=MOST_LEVELS)]
Weights = Annotated[tuple[Weight, ...], Field(min_length=1, max_length=MOST_LEVELS)]
Axes = tuple[Axis, ...] | None  # None means all
SomeAxes = Annotated[tuple[Axis, ...], Field(min_length=1)] | None

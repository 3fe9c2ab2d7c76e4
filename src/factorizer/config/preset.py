"""What a preset can say: typed sections that cannot be changed. Imports neither torch nor NumPy.

A preset is a YAML file with the sections of `Preset`; preset_files.py reads and writes it. Each
field has one text, which is its documentation, its help and its comment in YAML. Library classes
never see a preset: the stages pass plain values to them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from factorizer.config.augmentation import MAX_DISPLACEMENT, Affine, Augmentation, Elastic, Flip
from factorizer.config.fields import (
    AverageShare,
    Count,
    FoldCount,
    IntensityRange,
    LabelValue,
    LearningRate,
    Probability,
    Range,
    Section,
    Seed,
    Sizes,
    SpacingMm,
    Steps,
    WarmupSteps,
    Weight,
    Weights,
    optional,
    required,
    section,
)
from factorizer.config.model import Model, model_options
from factorizer.models.registry import options_of

if TYPE_CHECKING:
    from factorizer.targets import Targets

__all__ = [
    "MAX_DISPLACEMENT",
    "Affine",
    "Augmentation",
    "Data",
    "Elastic",
    "Flip",
    "Inference",
    "Model",
    "Preset",
    "Range",
    "Section",
    "Training",
    "build_options",
    "model_options",
]

MOST_PATCH_VOXELS = 512**3


class Data(Section):
    channels: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)] = required(
        "image channels, in the order in which the model takes them"
    )
    labels: Annotated[dict[str, LabelValue], Field(min_length=1)] = required(
        "value of each label in the label map; background is 0 and is not listed"
    )
    regions: Annotated[dict[str, tuple[str, ...]], Field(min_length=1, max_length=255)] = required(
        "regions to segment, which are the model's outputs; each is a union of labels"
    )
    clip: dict[str, IntensityRange] = optional(
        {},
        "range to which a channel's intensities are clipped first, such as {CT: [-160, 240]}; "
        "channels that are not listed are not clipped",
    )
    spacing_mm: tuple[SpacingMm, ...] | None = optional(
        None,
        "voxel size to which images are resampled, one number per axis; null keeps each image's "
        "own",
    )
    patch_size: Sizes = required("voxels of a patch per axis, for training and prediction")
    crop_to_nonzero: bool = optional(
        True, "crop images to the smallest box around their non-zero voxels"
    )
    normalization: Literal["zscore-nonzero", "zscore", "none"] = optional(
        "zscore-nonzero",
        "zero mean and unit variance per channel, over non-zero voxels (zscore-nonzero) or over "
        "all voxels (zscore); or none",
    )
    mask_suffix: Annotated[str, Field(min_length=1)] | None = optional(
        None,
        "end of a 2D mask's name, after the name of its image, such as _1stHO; null tries the "
        "usual ones",
    )
    foreground_fraction: Probability = optional(
        0.0, "share of training patches centred on a voxel of a region; the others lie anywhere"
    )
    augmentation: Augmentation = section(
        Augmentation,
        "random changes of training patches (App. A; the paper has neither elastic nor the last "
        "three)",
    )

    @model_validator(mode="after")
    def check_targets(self) -> Self:
        for region, names in self.regions.items():
            unknown = [name for name in names if name not in self.labels]
            if unknown or not names:
                got = f"names {', '.join(unknown)}" if unknown else "is empty"
                raise ValueError(
                    f"region {region} {got}; it must list some of the labels "
                    f"{', '.join(self.labels)}"
                )
        values = list(self.labels.values())
        if len(set(values)) < len(values):
            raise ValueError(
                f"labels have the values {values}; give each its own value from 1 to 255"
            )
        return self

    @model_validator(mode="after")
    def check_channels(self) -> Self:
        if len(set(self.channels)) < len(self.channels):
            raise ValueError(f"channels are {', '.join(self.channels)}; name each once")
        for channel, (low, high) in self.clip.items():
            if channel not in self.channels:
                raise ValueError(
                    f"clip names {channel}; the channels are {', '.join(self.channels)}"
                )
            if low >= high:
                raise ValueError(
                    f"clip of {channel} is [{low:g}, {high:g}]; give the lower end first"
                )
        return self

    @model_validator(mode="after")
    def check_patch(self) -> Self:
        if prod(self.patch_size) > MOST_PATCH_VOXELS:
            size = " x ".join(map(str, self.patch_size))
            raise ValueError(
                f"patch_size is {size}; a patch has at most {MOST_PATCH_VOXELS:,} voxels, make it "
                "smaller"
            )
        if self.spacing_mm is not None and len(self.spacing_mm) != len(self.patch_size):
            raise ValueError(
                f"spacing_mm has {len(self.spacing_mm)} numbers, patch_size {len(self.patch_size)}"
            )
        return self

    @model_validator(mode="after")
    def check_augmentation(self) -> Self:
        for name in ("affine", "elastic", "flip"):
            self.check_axes(name, getattr(self.augmentation, name).axes or ())
        if len(self.patch_size) == 2 and self.augmentation.affine.axes is not None:
            raise ValueError(
                "augmentation.affine.axes is for 3D; 2D images rotate in their plane, leave it out"
            )
        return self

    @model_validator(mode="after")
    def check_channel_dropout(self) -> Self:
        if self.takes_missing_channels and len(self.channels) < 2:
            raise ValueError(
                "augmentation.channel_dropout needs several channels, and there is one; set its "
                "probability to 0"
            )
        return self

    @property
    def takes_missing_channels(self) -> bool:
        """Whether training drops channels, so that a case without one can be predicted."""
        return self.augmentation.channel_dropout.probability > 0

    def check_axes(self, name: str, axes: tuple[int, ...]) -> None:
        dims = len(self.patch_size)
        if any(axis >= dims for axis in axes):
            raise ValueError(
                f"augmentation.{name}.axes is {list(axes)}; patches have the axes 0 to {dims - 1}"
            )
        if len(set(axes)) < len(axes):
            raise ValueError(f"augmentation.{name}.axes is {list(axes)}; name each axis once")

    @property
    def targets(self) -> Targets:
        """The labels and regions as one object."""
        from factorizer.targets import Targets  # imports NumPy, which is slow

        return Targets(self.labels, self.regions)

    @property
    def mirrored_axes(self) -> tuple[int, ...]:
        """The axes along which training mirrors patches."""
        flip = self.augmentation.flip
        if flip.probability == 0:
            return ()
        return tuple(range(len(self.patch_size))) if flip.axes is None else flip.axes


class Training(Section):
    max_steps: Steps = optional(100_000, "number of optimizer steps")
    batch_size: Count = optional(2, "patches per step, over all devices")
    optimizer: Literal["adamw", "muon"] = optional(
        "adamw",
        "adamw as in the paper, or muon, which needs fewer steps and a learning_rate from about "
        "1e-3",
    )
    learning_rate: LearningRate = optional(1e-4, "peak learning rate")
    weight_decay: Weight = optional(
        1e-2, "share of each weight that a step removes, divided by the learning rate"
    )
    warmup_steps: WarmupSteps = optional(
        2_000,
        "steps in which the learning rate rises linearly, before it falls as a cosine; at most a "
        "tenth of max_steps is used",
    )
    dice_epsilon: Annotated[float, Field(gt=0, le=1e6)] = optional(
        1e-5, "number added to numerator and denominator of the soft Dice loss"
    )
    deep_supervision_weights: Weights = optional(
        (1.0, 0.5, 0.25),
        "weights of the loss at full, half and quarter resolution; the first must be above 0",
    )
    average_weights: AverageShare = optional(
        0.0,
        "share that a step keeps of the running average of weights, such as 0.98; the averaged "
        "weights are then the model; 0 means that the last weights are",
    )
    gradient_clip: Annotated[float, Field(gt=0, le=1e9)] | None = optional(
        None, "largest norm of the gradient; null means no limit"
    )
    checkpoint_every: Steps = optional(1_000, "steps between checkpoints")
    validate_every: Steps = optional(5_000, "steps between validations on the held-out cases")
    folds: FoldCount = optional(5, "number of folds of the cross-validation")
    seed: Seed = optional(0, "seed of the weights, the folds, the patches and the augmentation")

    @model_validator(mode="after")
    def check_weights(self) -> Self:
        if not self.deep_supervision_weights[0] > 0:
            raise ValueError(
                f"deep_supervision_weights are {list(self.deep_supervision_weights)}; the first "
                "must be above 0"
            )
        return self


class Inference(Section):
    overlap: Annotated[float, Field(ge=0, le=0.95)] = optional(
        0.5, "overlap of neighbouring patches, as a share of a patch"
    )
    blending: Literal["constant", "gaussian"] = optional(
        "constant",
        "weight of a patch's voxels where patches overlap: the same for all (constant), or highest "
        "in the centre (gaussian)",
    )
    threshold: Probability = optional(0.5, "lowest probability of a voxel that is in a region")


class Preset(Section):
    title: str = required("one line about the data set")
    source: str = optional("", "where the data come from, their licence, and what to cite")
    data: Data = required("images, regions, patches")
    model: Model = section(Model, "the network")
    training: Training = section(Training, "optimization")
    inference: Inference = section(Inference, "prediction of whole images")

    @property
    def in_channels(self) -> int:
        return len(self.data.channels)

    @property
    def out_channels(self) -> int:
        return len(self.data.regions)


def build_options(preset: Preset, name: str) -> dict[str, Any]:
    """The keywords with which `build_model` builds the system `name` as the preset says."""
    return {
        "in_channels": preset.in_channels,
        "out_channels": preset.out_channels,
        "spatial_size": preset.data.patch_size,
        **model_options(preset.model, name, options_of(name)),
    }

"""What a preset can say: typed, frozen, every field with the one text that documents it. Imports no
torch.

A preset is a YAML file with the sections of `Preset` (`preset_files.py` reads and writes them).
Library classes never see a preset: the stages pass them plain values.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from factorizer.models.registry import check_name, options_of

if TYPE_CHECKING:
    from factorizer.targets import Targets

# as a share of the distance of control points: below 1 / 2.48 cubic B-splines cannot fold in 3D
# (Choi and Lee 2000)
MAX_DISPLACEMENT = 0.4


def refuse_descending(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError("give the lower end first")
    return value


Range = tuple[float, float]  # the lower end first
# Every number has bounds, wider than any sensible use: a slip of the hand is named before it takes
# the machine down.
MOST_STEPS = 10**8
MOST_PATCH_VOXELS = 512**3
MOST_EXTRA = 2**16

Probability = Annotated[float, Field(ge=0, le=1)]
Degrees = Annotated[float, Field(ge=-360, le=360)]
Scale = Annotated[float, Field(ge=0.1, le=10)]
Sigma = Annotated[float, Field(gt=0, le=20)]
Factor = Annotated[float, Field(ge=1e-3, le=1e3)]
Intensity = Annotated[float, Field(ge=-1e12, le=1e12)]
Variance = Annotated[float, Field(ge=0, le=1e12)]
Displacement = Annotated[float, Field(ge=0, le=400)]
SpacingMm = Annotated[float, Field(ge=0.05, le=100)]
Weight = Annotated[float, Field(ge=0, le=1e3)]
LabelValue = Annotated[int, Field(ge=1, le=255)]
Steps = Annotated[int, Field(gt=0, le=MOST_STEPS)]
Voxels = Annotated[int, Field(ge=1, le=4096)]  # along an axis
Channels = Annotated[int, Field(ge=1, le=4096)]
Blocks = Annotated[int, Field(ge=1, le=100)]
Stride = Annotated[int, Field(ge=1, le=64)]
DegreesRange = Annotated[tuple[Degrees, Degrees], AfterValidator(refuse_descending)]
ScaleRange = Annotated[tuple[Scale, Scale], AfterValidator(refuse_descending)]
SigmaRange = Annotated[tuple[Sigma, Sigma], AfterValidator(refuse_descending)]
FactorRange = Annotated[tuple[Factor, Factor], AfterValidator(refuse_descending)]
IntensityRange = Annotated[tuple[Intensity, Intensity], AfterValidator(refuse_descending)]
VarianceRange = Annotated[tuple[Variance, Variance], AfterValidator(refuse_descending)]
DisplacementRange = Annotated[tuple[Displacement, Displacement], AfterValidator(refuse_descending)]
Sizes = Annotated[tuple[Voxels, ...], Field(min_length=2, max_length=3)]
MOST_LEVELS = 12


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def section(of: type[Section], description: str) -> Any:
    return Field(default_factory=of, description=description)


def options(default: Any, description: str, **limits: Any) -> Any:
    return Field(default=default, description=description, **limits)


def required(description: str, **limits: Any) -> Any:
    return Field(description=description, **limits)


Axes = tuple[Annotated[int, Field(ge=0, le=2)], ...] | None  # null is all


class Affine(Section):
    probability: Probability = options(0.15, "how often")
    rotation_degrees: DegreesRange = options((-30.0, 30.0), "angle about each axis")
    axes: Axes = options(None, "in 3D, which axes to turn about, numbered as for flip; null is all")
    scale: ScaleRange = options((0.7, 1.3), "one factor for all axes")


class Elastic(Section):
    probability: Probability = options(0.0, "how often; the paper has none")
    control_spacing_voxels: Annotated[float, Field(ge=0.5, le=1000)] = options(
        10.0,
        "between control points, in voxels of the finest axis (of each where spacing_mm is null)",
    )
    displacement_voxels: DisplacementRange = options(
        (0.0, 4.0), "of control points, at most, along each axis, in the same voxels"
    )
    axes: Axes = options(
        None, "which axes they move along, numbered as for flip; null is all", min_length=1
    )

    @model_validator(mode="after")
    def check_no_folds(self) -> Self:
        limit = MAX_DISPLACEMENT * self.control_spacing_voxels
        if self.displacement_voxels[1] > limit * (1 + 1e-9):
            raise ValueError(
                f"points {self.control_spacing_voxels:g} voxels apart may move by {limit:g} before "
                f"tissue folds; displacement_voxels goes up to {self.displacement_voxels[1]:g}, "
                "lower it or put them further apart"
            )
        return self


class Flip(Section):
    probability: Probability = options(0.5, "how often, for each axis by itself")
    axes: Axes = options(
        None,
        "which axes: in 3D 0 is left-right, 1 back-front, 2 feet-head, in 2D 0 up-down, 1 "
        "left-right; null is all",
    )


class GaussianNoise(Section):
    probability: Probability = options(0.15, "how often")
    variance: VarianceRange = options(
        (0.0, 0.1), "of the noise: the standard deviation is its root"
    )


class GaussianSmoothing(Section):
    probability: Probability = options(0.15, "how often, for each channel by itself")
    sigma_voxels: SigmaRange = options((0.5, 1.5), "width of the Gaussian")


class ScaleIntensity(Section):
    probability: Probability = options(0.15, "how often")
    factor: FactorRange = options((0.7, 1.3), "by which intensities are multiplied")


class ShiftIntensity(Section):
    probability: Probability = options(0.15, "how often")
    offset: IntensityRange = options((-0.1, 0.1), "added to intensities")


class AdjustContrast(Section):
    probability: Probability = options(0.15, "how often")
    gamma: FactorRange = options((0.7, 1.5), "exponent, on intensities mapped to 0..1 and back")


class Augmentation(Section):
    affine: Affine = section(Affine, "rotation and scaling")
    elastic: Elastic = section(
        Elastic, "smooth deformation by cubic B-splines between displaced control points"
    )
    flip: Flip = section(Flip, "mirroring")
    gaussian_noise: GaussianNoise = section(GaussianNoise, "additive noise")
    gaussian_smoothing: GaussianSmoothing = section(GaussianSmoothing, "blurring")
    scale_intensity: ScaleIntensity = section(ScaleIntensity, "multiplication of intensities")
    shift_intensity: ShiftIntensity = section(ShiftIntensity, "shift of intensities")
    adjust_contrast: AdjustContrast = section(AdjustContrast, "gamma correction")


class Data(Section):
    channels: tuple[str, ...] = required(
        "image channels in the order the model takes them", min_length=1, max_length=64
    )
    labels: dict[str, LabelValue] = required(
        "value of each label in the label map, background 0 left out", min_length=1
    )
    regions: dict[str, tuple[str, ...]] = required(
        "the model's outputs: each the union of some labels", min_length=1, max_length=255
    )
    clip: dict[str, IntensityRange] = options(
        {},
        "range that a channel's intensities are cut to first, such as {CT: [-160, 240]}; empty "
        "cuts "
        "nothing",
    )
    spacing_mm: tuple[SpacingMm, ...] | None = options(
        None, "grid that images are resampled to, one number per axis; null keeps the image's own"
    )
    patch_size: Sizes = required("voxels of a training patch and of the inference window")
    crop_to_nonzero: bool = options(True, "crop to the smallest box around non-zero voxels")
    normalization: Literal["zscore-nonzero", "zscore", "none"] = options(
        "zscore-nonzero",
        "per channel: zero mean and unit variance over its non-zero voxels, over all, or none",
    )
    mask_suffix: str | None = options(
        None,
        "how masks of 2D pictures are named after them, such as _1stHO; null tries the usual ones",
        min_length=1,
    )
    foreground_fraction: Probability = options(
        0.0, "share of patches centred on a voxel of some region; 0 is uniform"
    )
    augmentation: Augmentation = section(
        Augmentation, "random changes of training patches, in this order (App. A, but for elastic)"
    )

    @model_validator(mode="after")
    def check_regions(self) -> Self:
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
        for name in ("affine", "elastic", "flip"):
            self.check_axes(name, getattr(self.augmentation, name).axes or ())
        if len(self.patch_size) == 2 and self.augmentation.affine.axes is not None:
            raise ValueError(
                "augmentation.affine.axes is for 3D; pictures turn in their plane, leave it out"
            )
        return self

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
        from factorizer.targets import Targets  # with NumPy, which takes time to import

        return Targets(self.labels, self.regions)

    @property
    def mirrored_axes(self) -> tuple[int, ...]:
        """The axes that patches are mirrored along in training."""
        flip = self.augmentation.flip
        every = tuple(range(len(self.patch_size)))
        return () if flip.probability == 0 else every if flip.axes is None else flip.axes


class Model(Section):
    """Each field is a keyword of the systems' builders; one that a system does not have does not
    concern it."""

    name: str = options("swin-factorizer", "the system; `factorizer models` lists them")
    widths: tuple[Channels, ...] = options(
        (32, 64, 128, 256, 512),
        "channels per level, the last for the bridge",
        min_length=1,
        max_length=MOST_LEVELS,
    )
    depths: Annotated[tuple[Blocks, ...], Field(min_length=1, max_length=MOST_LEVELS)] | None = (
        options(None, "blocks per level; null is one each")
    )
    strides: Stride | tuple[Stride | tuple[Stride, ...], ...] = options(
        2, "downsampling, for all, per level, or per level and axis"
    )
    window: Voxels | tuple[Voxels, ...] = options(
        8, "side P of a window in voxels (Local and Swin Factorizer)"
    )
    head_dim: int = options(8, "channels E of a head (Factorizers and Performer)", gt=0, le=4096)
    rank: int = options(1, "rank R of the factorization", gt=0, le=4096)
    num_iters: int = options(5, "iterations T of the factorization", gt=0, le=1000)
    solver: Literal["hals", "mu", "semi", "convex", "greedy", "joint"] = options(
        "hals", "how the factorization is updated; all but hals and mu are beyond the paper"
    )
    tolerance: Probability = options(0.1, "share of a matrix that a greedy factorization may leave")
    mixer: Literal["nmf", "none"] = options("nmf", "none leaves the NMF sub-block out")
    mlp_ratio: float = options(
        2.0, "hidden width of the MLP over its width; 0 leaves it out", ge=0, le=100
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = options(
        0.0, "dropout rate (Factorizers and Performer)"
    )
    position_embedding: bool = options(True, "learned position embedding in the bridge")
    deep_supervision: bool = options(True, "train on the three highest resolutions")
    extra: dict[str, Any] = options(
        {}, "further keywords of the system's builder, such as {feature_size: 24} for unetr"
    )

    @model_validator(mode="after")
    def check_system(self) -> Self:
        check_name(self.name)
        taken = {"in_channels", "out_channels", "spatial_size"} & set(self.extra)
        if taken:
            raise ValueError(
                f"extra sets {', '.join(sorted(taken))}, which follow from the data section; leave "
                "them out"
            )
        for option, value in self.extra.items():
            check_extra(option, value)
        return self


def check_extra(option: str, value: Any) -> None:
    """The numbers of a keyword that only the system's builder knows."""
    if isinstance(value, list | tuple):
        for part in value:
            check_extra(option, part)
    elif isinstance(value, int | float) and option != "seed" and not abs(value) <= MOST_EXTRA:
        raise ValueError(f"extra sets {option} beyond {MOST_EXTRA:,}; give a smaller number")


def model_options(model: Model, name: str, known: Iterable[str]) -> dict[str, Any]:
    """The keywords for the builder of system `name`, which has the options `known`; `extra` is for
    the preset's."""
    fields = {field: getattr(model, field) for field in known if field in Model.model_fields}
    return fields | (model.extra if name == model.name else {})


class Training(Section):
    max_steps: Steps = options(100_000, "optimizer steps")
    batch_size: int = options(2, "patches per step, over all devices", gt=0, le=4096)
    optimizer: Literal["adamw", "muon"] = options(
        "adamw", "muon needs fewer steps, at rates from about 1e-3"
    )
    learning_rate: float = options(1e-4, "peak learning rate", gt=0, le=10, allow_inf_nan=False)
    weight_decay: Weight = options(1e-2, "what weights lose per step, times the learning rate")
    warmup_steps: int = options(
        2_000,
        "steps of linear rise before the cosine; at most a tenth of max_steps",
        ge=0,
        le=MOST_STEPS,
    )
    dice_epsilon: float = options(
        1e-5, "added to numerator and denominator of the soft Dice loss", gt=0, le=1e6
    )
    deep_supervision_weights: tuple[Weight, ...] = options(
        (1.0, 0.5, 0.25),
        "of the loss at full, half and quarter resolution; the first above 0",
        min_length=1,
        max_length=MOST_LEVELS,
    )
    gradient_clip: Annotated[float, Field(gt=0, le=1e9)] | None = options(
        None, "largest norm of the gradient; null is no limit"
    )
    checkpoint_every: Steps = options(1_000, "steps between checkpoints")
    validate_every: Steps = options(5_000, "steps between validations on the held-out fold")
    folds: int = options(5, "of the cross-validation", ge=2, le=10_000)
    seed: int = options(
        0, "of the weights, the folds, the patches and the augmentation", ge=0, lt=2**32
    )

    @model_validator(mode="after")
    def check_weights(self) -> Self:
        if not self.deep_supervision_weights[0] > 0:
            raise ValueError(
                f"deep_supervision_weights are {list(self.deep_supervision_weights)}; the first "
                "must be above 0"
            )
        return self


class Inference(Section):
    overlap: Annotated[float, Field(ge=0, le=0.95)] = options(
        0.5, "of neighbouring windows, as a share of the window"
    )
    blending: Literal["constant", "gaussian"] = options(
        "constant", "weight of a window's voxels in the average"
    )
    threshold: Probability = options(0.5, "probability from which a voxel belongs to a region")


class Preset(Section):
    title: str = required("one line about the data set")
    source: str = options("", "where the data come from, their licence, and what to cite")
    data: Data = required("images, targets, patches")
    model: Model = section(Model, "the network")
    training: Training = section(Training, "optimization")
    inference: Inference = section(Inference, "prediction on whole images")

    @property
    def in_channels(self) -> int:
        return len(self.data.channels)

    @property
    def out_channels(self) -> int:
        return len(self.data.regions)


def build_options(preset: Preset, name: str) -> dict[str, Any]:
    """Everything `build_model` needs to build a system as the preset says."""
    return {
        "in_channels": preset.in_channels,
        "out_channels": preset.out_channels,
        "spatial_size": preset.data.patch_size,
        **model_options(preset.model, name, options_of(name)),
    }

"""What a preset can say: typed, frozen, every field with the one text that documents it. Imports no torch.

A preset is a YAML file with the sections of `Preset`. `load_preset` reads one that ships with the package,
by name, or any file, by path. Library classes never see a preset: the stages pass them plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from factorizer.models.registry import check_name, options_of, suggestion

PRESET_FOLDER = resources.files("factorizer") / "presets"


class PresetError(ValueError):
    """A preset that cannot be used; the message says which field, what was got and what is allowed."""


def refuse_descending(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError("give the lower end first")
    return value


Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]
Range = Annotated[tuple[Finite, Finite], AfterValidator(refuse_descending)]
PositiveRange = Annotated[tuple[Positive, Positive], AfterValidator(refuse_descending)]
NotNegativeRange = Annotated[tuple[NotNegative, NotNegative], AfterValidator(refuse_descending)]
PositiveInt = Annotated[int, Field(gt=0)]
PositiveInts = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
Sizes = Annotated[tuple[PositiveInt, ...], Field(min_length=2, max_length=3)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def section(of: type[Section], description: str) -> Any:
    return Field(default_factory=of, description=description)


def options(default: Any, description: str, **limits: Any) -> Any:
    return Field(default=default, description=description, **limits)


def required(description: str, **limits: Any) -> Any:
    return Field(description=description, **limits)


class Affine(Section):
    probability: Probability = options(0.15, "how often")
    rotation_degrees: Range = options((-30.0, 30.0), "angle about each axis")
    scale: PositiveRange = options((0.7, 1.3), "one factor for all axes")


class Flip(Section):
    probability: Probability = options(0.5, "how often, for each axis by itself")
    axes: tuple[Annotated[int, Field(ge=0, le=2)], ...] | None = options(
        None, "which axes: in 3D 0 is left-right, 1 back-front, 2 feet-head, in 2D 0 up-down, 1 left-right; null is all"
    )


class GaussianNoise(Section):
    probability: Probability = options(0.15, "how often")
    variance: NotNegativeRange = options((0.0, 0.1), "of the noise: the standard deviation is its root")


class GaussianSmoothing(Section):
    probability: Probability = options(0.15, "how often, for each channel by itself")
    sigma_voxels: PositiveRange = options((0.5, 1.5), "width of the Gaussian")


class ScaleIntensity(Section):
    probability: Probability = options(0.15, "how often")
    factor: PositiveRange = options((0.7, 1.3), "by which intensities are multiplied")


class ShiftIntensity(Section):
    probability: Probability = options(0.15, "how often")
    offset: Range = options((-0.1, 0.1), "added to intensities")


class AdjustContrast(Section):
    probability: Probability = options(0.15, "how often")
    gamma: PositiveRange = options((0.7, 1.5), "exponent, on intensities mapped to 0..1 and back")


class Augmentation(Section):
    affine: Affine = section(Affine, "rotation and scaling")
    flip: Flip = section(Flip, "mirroring")
    gaussian_noise: GaussianNoise = section(GaussianNoise, "additive noise")
    gaussian_smoothing: GaussianSmoothing = section(GaussianSmoothing, "blurring")
    scale_intensity: ScaleIntensity = section(ScaleIntensity, "multiplication of intensities")
    shift_intensity: ShiftIntensity = section(ShiftIntensity, "shift of intensities")
    adjust_contrast: AdjustContrast = section(AdjustContrast, "gamma correction")


class Data(Section):
    channels: tuple[str, ...] = required("image channels in the order the model takes them", min_length=1)
    labels: dict[str, int] = required("value of each label in the label map, background 0 left out", min_length=1)
    regions: dict[str, tuple[str, ...]] = required("the model's outputs: each the union of some labels", min_length=1)
    clip: dict[str, Range] = options(
        {}, "range that a channel's intensities are cut to first, such as {CT: [-160, 240]}; empty cuts nothing"
    )
    spacing_mm: tuple[Positive, ...] | None = options(
        None, "grid that images are resampled to, one number per axis; null keeps the image's own"
    )
    patch_size: Sizes = required("voxels of a training patch and of the inference window")
    crop_to_nonzero: bool = options(True, "crop to the smallest box around non-zero voxels")
    normalization: Literal["zscore-nonzero", "zscore", "none"] = options(
        "zscore-nonzero", "per channel: zero mean and unit variance over its non-zero voxels, over all, or none"
    )
    mask_suffix: str | None = options(
        None, "how masks of 2D pictures are named after them, such as _1stHO; null tries the usual ones", min_length=1
    )
    foreground_fraction: Probability = options(0.0, "share of patches centred on a voxel of some region; 0 is uniform")
    augmentation: Augmentation = section(Augmentation, "random changes of training patches, in this order (App. A)")

    @model_validator(mode="after")
    def check_regions(self) -> Self:
        for region, names in self.regions.items():
            unknown = [name for name in names if name not in self.labels]
            if unknown or not names:
                got = f"names {', '.join(unknown)}" if unknown else "is empty"
                raise ValueError(f"region {region} {got}; it must list some of the labels {', '.join(self.labels)}")
        values = list(self.labels.values())
        if len(set(values)) < len(values) or min(values) < 1 or max(values) > 255:
            raise ValueError(f"labels have the values {values}; give each its own value from 1 to 255")
        if len(set(self.channels)) < len(self.channels):
            raise ValueError(f"channels are {', '.join(self.channels)}; name each once")
        for channel, (low, high) in self.clip.items():
            if channel not in self.channels:
                raise ValueError(f"clip names {channel}; the channels are {', '.join(self.channels)}")
            if low >= high:
                raise ValueError(f"clip of {channel} is [{low:g}, {high:g}]; give the lower end first")
        if self.spacing_mm is not None and len(self.spacing_mm) != len(self.patch_size):
            raise ValueError(f"spacing_mm has {len(self.spacing_mm)} numbers, patch_size {len(self.patch_size)}")
        axes, dims = self.augmentation.flip.axes or (), len(self.patch_size)
        if any(axis >= dims for axis in axes):
            raise ValueError(f"augmentation.flip.axes is {list(axes)}; patches have the axes 0 to {dims - 1}")
        if len(set(axes)) < len(axes):
            raise ValueError(f"augmentation.flip.axes is {list(axes)}; name each axis once")
        return self

    @property
    def mirrored_axes(self) -> tuple[int, ...]:
        """The axes that patches are mirrored along in training."""
        flip = self.augmentation.flip
        every = tuple(range(len(self.patch_size)))
        return () if flip.probability == 0 else every if flip.axes is None else flip.axes


class Model(Section):
    """Each field is a keyword of the systems' builders; one that a system does not have does not concern it."""

    name: str = options("swin-factorizer", "the system; `factorizer models` lists them")
    widths: PositiveInts = options((32, 64, 128, 256, 512), "channels per level, the last for the bridge")
    depths: PositiveInts | None = options(None, "blocks per level; null is one each")
    strides: PositiveInt | tuple[PositiveInt | tuple[PositiveInt, ...], ...] = options(
        2, "downsampling, for all, per level, or per level and axis"
    )
    window: PositiveInt | tuple[PositiveInt, ...] = options(
        8, "side P of a window in voxels (Local and Swin Factorizer)"
    )
    head_dim: int = options(8, "channels E of a head (Factorizers and Performer)", gt=0)
    rank: int = options(1, "rank R of the factorization", gt=0)
    num_iters: int = options(5, "iterations T of the factorization", gt=0)
    solver: Literal["hals", "mu", "semi", "convex", "greedy", "joint"] = options(
        "hals", "how the factorization is updated; all but hals and mu are beyond the paper"
    )
    tolerance: Probability = options(0.1, "share of a matrix that a greedy factorization may leave")
    mixer: Literal["nmf", "none"] = options("nmf", "none leaves the NMF sub-block out")
    mlp_ratio: float = options(2.0, "hidden width of the MLP over its width; 0 leaves it out", ge=0)
    dropout: Annotated[float, Field(ge=0, lt=1)] = options(0.0, "dropout rate (Factorizers and Performer)")
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
                f"extra sets {', '.join(sorted(taken))}, which follow from the data section; leave them out"
            )
        return self


def model_options(model: Model, name: str, known: Iterable[str]) -> dict[str, Any]:
    """The keywords for the builder of system `name`, which has the options `known`; `extra` is for the preset's."""
    fields = {field: getattr(model, field) for field in known if field in Model.model_fields}
    return fields | (model.extra if name == model.name else {})


class Training(Section):
    max_steps: int = options(100_000, "optimizer steps", gt=0)
    batch_size: int = options(2, "patches per step, over all devices", gt=0)
    optimizer: Literal["adamw", "muon"] = options("adamw", "muon needs fewer steps, at rates from about 1e-3")
    learning_rate: Positive = options(1e-4, "peak learning rate")
    weight_decay: NotNegative = options(1e-2, "what weights lose per step, times the learning rate")
    warmup_steps: int = options(2_000, "steps of linear rise before the cosine; at most a tenth of max_steps", ge=0)
    dice_epsilon: float = options(1e-5, "added to numerator and denominator of the soft Dice loss", gt=0)
    deep_supervision_weights: tuple[NotNegative, ...] = options(
        (1.0, 0.5, 0.25), "of the loss at full, half and quarter resolution; the first above 0", min_length=1
    )
    gradient_clip: Annotated[float, Field(gt=0)] | None = options(
        None, "largest norm of the gradient; null is no limit"
    )
    checkpoint_every: int = options(1_000, "steps between checkpoints", gt=0)
    validate_every: int = options(5_000, "steps between validations on the held-out fold", gt=0)
    folds: int = options(5, "of the cross-validation", ge=2)
    seed: int = options(0, "of the weights, the folds, the patches and the augmentation", ge=0, lt=2**32)

    @model_validator(mode="after")
    def check_weights(self) -> Self:
        if not self.deep_supervision_weights[0] > 0:
            raise ValueError(
                f"deep_supervision_weights are {list(self.deep_supervision_weights)}; the first must be above 0"
            )
        return self


class Inference(Section):
    overlap: Annotated[float, Field(ge=0, lt=1)] = options(0.5, "of neighbouring windows, as a share of the window")
    blending: Literal["constant", "gaussian"] = options("constant", "weight of a window's voxels in the average")
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


def preset_names() -> list[str]:
    """The presets that ship with the package."""
    return sorted(file.name.removesuffix(".yaml") for file in PRESET_FOLDER.iterdir() if file.name.endswith(".yaml"))


def load_preset(name_or_path: str | Path) -> Preset:
    """Read a preset by its name, or from a YAML file by its path (anything with a slash or a suffix)."""
    text = str(name_or_path)
    if Path(text).suffix in (".yaml", ".yml") or "/" in text:
        path = Path(text)
        if not path.is_file():
            raise PresetError(
                f"there is no preset file {text}; give a file, or one of the names {', '.join(preset_names())}"
            )
        return parse_preset(path.read_text(), text)
    if text not in preset_names():
        raise PresetError(
            f"no preset is named {text!r}{suggestion(text, preset_names())}; choose one of {', '.join(preset_names())}"
        )
    return parse_preset((PRESET_FOLDER / f"{text}.yaml").read_text(), text)


def parse_preset(text: str, origin: str) -> Preset:
    """A preset from YAML; the error names every field that is wrong."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PresetError(f"{origin} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise PresetError(f"{origin} holds no sections; it must have at least title and data")
    return validate_preset(values, origin)


def validate_preset(values: dict[str, Any], origin: str) -> Preset:
    try:
        return Preset.model_validate(values)
    except ValidationError as error:
        problems = "\n".join(f"  {describe(problem)}" for problem in error.errors())
        raise PresetError(f"{origin} cannot be used:\n{problems}") from None


def change_preset(preset: Preset, changes: Iterable[str]) -> Preset:
    """A preset with some fields set, each as path.to.field=value with a value in YAML."""
    values = preset.model_dump(mode="json")
    for change in changes:
        path, sign, text = change.partition("=")
        if not sign:
            raise PresetError(f"--set got {change!r}; give path.to.field=value, such as training.max_steps=100")
        *parents, field = path.split(".")
        section: Any = values
        for parent in parents:
            section = section.get(parent)
            if not isinstance(section, dict):
                known = ", ".join(Preset.model_fields)
                raise PresetError(f"--set got {change!r}; there is no section {parent!r} (the sections are {known})")
        try:
            section[field] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise PresetError(f"--set got {change!r}; the value is not YAML: {error}") from None
    return validate_preset(values, "the preset with --set")


def refuse_idle_options(preset: Preset, changes: Iterable[str]) -> None:
    """A model field that is set on purpose must be one that the chosen system has."""
    name = preset.model.name
    known = [*(field for field in options_of(name) if field in Model.model_fields), "name", "extra"]
    for change in changes:
        path = change.partition("=")[0].split(".")
        if path[0] == "model" and len(path) > 1 and path[1] not in known:
            raise PresetError(f"--set got {change!r}; {name} has no such option, only {', '.join(known)}")


def describe(problem: Any) -> str:
    """One line about one of pydantic's errors."""
    place = ".".join(map(str, problem["loc"])) or "preset"
    if problem["type"] == "extra_forbidden":
        *parents, field = problem["loc"]
        known = list(fields_of(parents))
        return f"{place}: there is no such field{suggestion(str(field), known)}; the fields are {', '.join(known)}"
    if problem["type"] == "missing":
        return f"{place}: this field is missing"
    return f"{place}: {problem['msg'].removeprefix('Value error, ')} (got {problem['input']!r})"


def fields_of(path: Iterable[Any]) -> Iterable[str]:
    """The names of the fields of the section at `path`."""
    model: Any = Preset
    for name in path:
        model = model.model_fields[name].annotation
    return model.model_fields


def to_yaml(preset: Preset) -> str:
    """The preset as YAML with every field's text as a comment; reading it gives the same preset."""
    return "\n".join(yaml_lines(preset, indent="")) + "\n"


def yaml_lines(values: Section, indent: str) -> Iterator[str]:
    for name, field in type(values).model_fields.items():
        value = getattr(values, name)
        if isinstance(value, Section):
            yield f"{indent}{name}:  # {field.description}"
            yield from yaml_lines(value, indent + "  ")
        else:
            yield f"{indent}{name}: {scalar(values.model_dump(mode='json')[name])}  # {field.description}"


def scalar(value: Any) -> str:
    """A value on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.removesuffix("...\n").strip()

"""Presets as YAML: how they are read, changed, written and checked. Imports no torch.

`load_preset` reads a preset that ships with the package by its name, and any file by its path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from factorizer.config import Model, Preset, Section
from factorizer.errors import FactorizerError
from factorizer.files import MOST_YAML_BYTES, FileError, parse_yaml, read_text
from factorizer.models.registry import options_of
from factorizer.words import did_you_mean, nearest, printable, suggest

PRESET_FOLDER = resources.files("factorizer") / "presets"
CONFIG = "config.yaml"  # the preset in the folder of a model; the other files are in runs/
ZOO = "zoo:"  # comes before the name of a model that ships with the package
ZOO_FOLDER = Path(str(resources.files("factorizer") / "zoo"))

# sections whose names are the user's own
FREE = ("data.labels", "data.regions", "data.clip", "model.extra")
NUMBER = re.compile(r"\s*[-+]?[\d.]+(e[-+]?\d+)?\s*")
MOST_PROBLEMS = 20  # problems of one preset that are listed
LONGEST = 100  # characters of a value in a message


class PresetError(FactorizerError):
    """A preset that cannot be used. The message names the field, its value and what is allowed."""


def preset_names() -> list[str]:
    """The presets that ship with the package."""
    files = [file.name for file in PRESET_FOLDER.iterdir()]
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def zoo_folder() -> Path:
    """Where the models of the zoo are."""
    return ZOO_FOLDER


def zoo_presets() -> list[str]:
    """The models of the zoo. Each holds the preset it was trained with."""
    if not ZOO_FOLDER.is_dir():
        return []
    folders = [folder for folder in ZOO_FOLDER.iterdir() if (folder / CONFIG).is_file()]
    return sorted(folder.name for folder in folders)


def load_preset(preset: str | Path | Preset) -> Preset:
    """Read a preset.

    Args:
        preset: The name of a preset that ships with the package, zoo:NAME for the preset of a model
            of the zoo, or a YAML file. A name with a slash, or that ends in .yaml or .yml, is the
            path of a file. A preset is returned as it is.

    Example:
        >>> factorizer.load_preset("hippocampus").data.channels
        ('MRI',)
    """
    if isinstance(preset, Preset):
        return preset
    text = str(preset)
    if text.startswith(ZOO):
        name = text.removeprefix(ZOO)
        if name not in zoo_presets():
            hint = suggest(name, zoo_presets(), "the zoo has")
            raise PresetError(f"there is no model {text}{hint}")
        return parse_preset((ZOO_FOLDER / name / CONFIG).read_text(), text)
    if Path(text).suffix in (".yaml", ".yml") or "/" in text:
        return parse_preset(read_preset_file(Path(text)), text)
    if text not in preset_names():
        hint = suggest(text, preset_names(), "choose one of")
        raise PresetError(f"no preset is named {text!r}{hint}")
    return parse_preset((PRESET_FOLDER / f"{text}.yaml").read_text(), text)


def read_preset_file(path: Path) -> str:
    if not path.exists():
        raise PresetError(
            f"there is no preset file {path}; give a file, or one of the names "
            f"{', '.join(preset_names())}"
        )
    try:
        return read_text(path, most_bytes=MOST_YAML_BYTES)
    except FileError as error:
        raise PresetError(str(error)) from None


def parse_preset(text: str, origin: str) -> Preset:
    """Make a preset from YAML. The error names every field that is wrong, and `origin`."""
    try:
        values = parse_yaml(text)
    except yaml.YAMLError as error:
        raise PresetError(f"{origin} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise PresetError(f"{origin} has no sections; it must have at least title and data")
    return validate_preset(values, origin)


def validate_preset(values: dict[str, Any], origin: str) -> Preset:
    try:
        return Preset.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        lines = [f"  {describe(problem)}" for problem in found[:MOST_PROBLEMS]]
        if len(found) > MOST_PROBLEMS:
            lines.append(f"  and {len(found) - MOST_PROBLEMS} more")
        raise PresetError("\n".join([f"{origin} cannot be used:", *lines])) from None


def change_preset(preset: Preset, changes: Iterable[str]) -> Preset:
    """A preset with some fields changed.

    Args:
        preset: The preset, which stays as it is.
        changes: Each is path.to.field=value, with the value in YAML.

    Example:
        >>> brats = factorizer.load_preset("brats")
        >>> preset = factorizer.change_preset(brats, ["training.max_steps=100"])
        >>> preset.training.max_steps
        100
    """
    values = preset.model_dump(mode="json")
    for change in changes:
        _, sign, text = change.partition("=")
        if not sign:
            raise refusal(change, "give path.to.field=value, such as training.max_steps=100")
        section, field = find_field(values, change)
        value = parse_value(change, text)
        if not isinstance(section.get(field), str):
            refuse_bare_list(value, change)
        section[field] = value
    return validate_preset(values, "the changed preset")


def refusal(change: str, reason: str) -> PresetError:
    return PresetError(f"cannot set {change!r}: {reason}")


def find_field(values: dict[str, Any], change: str) -> tuple[dict[str, Any], str]:
    """The section that a change is for, and the name of the field in it."""
    path, _, text = change.partition("=")
    *parents, field = path.split(".")
    section = values
    for parent in parents:
        known = [name for name, value in section.items() if isinstance(value, dict)]
        if parent not in known:
            meant = nearest(parent, known) or suggest_path(values, path, text)
            hint = did_you_mean(meant, f"the sections are {', '.join(known) or 'none'}")
            raise refusal(change, f"there is no section {parent!r}{hint}")
        section = section[parent]
    meant = suggest_path(values, path, text)
    if field not in section and meant and ".".join(parents) not in FREE:
        raise refusal(change, f"there is no field {path!r}; did you mean {meant}?")
    return section, field


def parse_value(change: str, text: str) -> Any:
    try:
        return parse_yaml(text)
    except yaml.YAMLError as error:
        raise refusal(change, f"the value is not YAML: {error}") from None


def suggest_path(values: Any, path: str, text: str) -> str:
    """The change that was meant by a field without its section, or with a wrong one.

    Empty if none is near.
    """
    paths = field_paths(values)
    if path in paths:
        return ""
    field = path.rpartition(".")[2]
    found = [known for known in paths if known.endswith(f".{path}")]
    found = found or [known for known in paths if known.endswith(f".{field}")]
    if not found:
        return ""
    found.sort(key=lambda known: SequenceMatcher(None, known, path).ratio(), reverse=True)
    others = f" (or {', '.join(found[1:4])})" if len(found) > 1 else ""
    return f"{found[0]}={text}{others}"


def field_paths(values: Any, before: str = "") -> list[str]:
    """The paths of all fields, as changes name them."""
    paths = []
    for name, value in values.items():
        path = f"{before}{name}"
        if isinstance(value, dict) and path not in FREE:
            paths += field_paths(value, f"{path}.")
        else:
            paths.append(path)
    return paths


def refuse_bare_list(value: Any, change: str) -> None:
    """Refuse a list without brackets: 8,16 would be text."""
    parts = value.split(",") if isinstance(value, str) else []
    if len(parts) > 1 and all(NUMBER.fullmatch(part) for part in parts):
        path = change.partition("=")[0]
        listed = ",".join(part.strip() for part in parts)
        raise refusal(change, f"a list needs brackets: '{path}=[{listed}]'")


def refuse_idle_options(preset: Preset, changes: Iterable[str]) -> None:
    """Refuse a change without effect: the chosen system has no such option, or an augmentation
    never happens."""
    name = preset.model.name
    known = [field for field in options_of(name) if field in Model.model_fields]
    known += ["name", "extra"]
    for change in changes:
        path = change.partition("=")[0].split(".")
        if path[0] == "model" and len(path) > 1 and path[1] not in known:
            raise refusal(change, f"{name} has no such option, only {', '.join(known)}")
        is_augmentation = path[:2] == ["data", "augmentation"] and len(path) == 4
        if is_augmentation and path[3] != "probability":
            augmentation = getattr(preset.data.augmentation, path[2])
            if not augmentation.probability:
                place = ".".join(path[:3])
                raise refusal(change, f"{place}.probability is 0; change that too")


def describe(problem: Any) -> str:
    """One line about one of pydantic's errors."""
    place = ".".join(map(str, problem["loc"])) or "preset"
    if problem["type"] == "extra_forbidden":
        *parents, field = problem["loc"]
        known = list(fields_of(parents))
        hint = suggest(str(field), known, "the fields are")
        return f"{place}: there is no such field{hint}"
    if problem["type"] == "missing":
        return f"{place}: this field is missing"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error" and isinstance(problem["input"], dict):
        return f"{place}: {message}"  # a validator of ours, whose message says what was got
    return f"{place}: {message} (got {shorten(problem['input'])})"


def shorten(value: Any) -> str:
    """A value for a message, shortened if it is long."""
    try:
        text = repr(value)
    except ValueError:  # a number with more digits than Python prints
        return "a number with thousands of digits"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def fields_of(path: Iterable[Any]) -> Iterable[str]:
    """The names of the fields of the section at `path`."""
    model: Any = Preset
    for name in path:
        model = model.model_fields[name].annotation
    return model.model_fields


def to_yaml(preset: Preset) -> str:
    """The preset as YAML, each field with its description as a comment. Reading it gives the same
    preset."""
    return "\n".join(yaml_lines(preset, indent="")) + "\n"


def yaml_lines(values: Section, indent: str) -> Iterator[str]:
    for name, field in type(values).model_fields.items():
        value = getattr(values, name)
        if isinstance(value, Section):
            yield f"{indent}{name}:  # {field.description}"
            yield from yaml_lines(value, indent + "  ")
        else:
            text = scalar(values.model_dump(mode="json")[name])
            yield f"{indent}{name}: {text}  # {field.description}"


def scalar(value: Any) -> str:
    """A value on one line of YAML. Characters that control a terminal become escapes."""
    text = dump_line(value, allow_unicode=True)
    if printable(text) != text:
        text = dump_line(value, allow_unicode=False)
    return text.removesuffix("...\n").strip()


def dump_line(value: Any, *, allow_unicode: bool) -> str:
    return yaml.safe_dump(
        value,
        default_flow_style=True,
        sort_keys=False,
        width=10**6,
        allow_unicode=allow_unicode,
    )

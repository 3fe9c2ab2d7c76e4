"""Presets as YAML: reading, changing and writing them, and telling what is wrong with one. Imports no torch.

`load_preset` reads one that ships with the package, by name, or any file, by path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from factorizer.config import Model, Preset, Section
from factorizer.models.registry import options_of, suggestion

PRESET_FOLDER = resources.files("factorizer") / "presets"
ZOO = "zoo:"  # before the name of a model that ships with the package
ZOO_FOLDER = resources.files("factorizer") / "zoo"


class PresetError(ValueError):
    """A preset that cannot be used; the message says which field, what was got and what is allowed."""


def preset_names() -> list[str]:
    """The presets that ship with the package."""
    return sorted(file.name.removesuffix(".yaml") for file in PRESET_FOLDER.iterdir() if file.name.endswith(".yaml"))


def load_preset(name_or_path: str | Path) -> Preset:
    """Read a preset by its name, that of zoo:NAME, or a YAML file by its path (anything with a slash or a suffix)."""
    text = str(name_or_path)
    if text.startswith(ZOO):
        config = ZOO_FOLDER / text.removeprefix(ZOO) / "config.yaml"
        if not config.is_file():
            raise PresetError(f"there is no model {text}; `factorizer zoo` lists them")
        return parse_preset(config.read_text(), text)
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
            known = [name for name, value in section.items() if isinstance(value, dict)]
            if parent not in known:
                hint = suggestion(parent, known)
                listed = ", ".join(known) or "none"
                raise PresetError(f"--set got {change!r}; there is no section {parent!r}{hint}; here are {listed}")
            section = section[parent]
        try:
            section[field] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise PresetError(f"--set got {change!r}; the value is not YAML: {error}") from None
    return validate_preset(values, "the preset with --set")


def refuse_idle_options(preset: Preset, changes: Iterable[str]) -> None:
    """What is set on purpose must do something: be of the chosen system, or of an augmentation that happens."""
    name = preset.model.name
    known = [*(field for field in options_of(name) if field in Model.model_fields), "name", "extra"]
    for change in changes:
        path = change.partition("=")[0].split(".")
        if path[0] == "model" and len(path) > 1 and path[1] not in known:
            raise PresetError(f"--set got {change!r}; {name} has no such option, only {', '.join(known)}")
        augments = path[:2] == ["data", "augmentation"] and len(path) == 4 and path[3] != "probability"
        if augments and not getattr(preset.data.augmentation, path[2]).probability:
            place = ".".join(path[:3])
            raise PresetError(f"--set got {change!r}, but {place}.probability is 0; set that too")


def describe(problem: Any) -> str:
    """One line about one of pydantic's errors."""
    place = ".".join(map(str, problem["loc"])) or "preset"
    if problem["type"] == "extra_forbidden":
        *parents, field = problem["loc"]
        known = list(fields_of(parents))
        return f"{place}: there is no such field{suggestion(str(field), known)}; the fields are {', '.join(known)}"
    if problem["type"] == "missing":
        return f"{place}: this field is missing"
    message = problem["msg"].removeprefix("Value error, ")
    whole = problem["type"] == "value_error" and isinstance(problem["input"], dict)  # its message says what was got
    return f"{place}: {message}" if whole else f"{place}: {message} (got {problem['input']!r})"


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

"""Presets as YAML: reading, changing and writing them, and telling what is wrong with one. Imports
no torch.

`load_preset` reads one that ships with the package, by name, or any file, by path.
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
from factorizer.models.registry import options_of, suggestion
from factorizer.words import printable

PRESET_FOLDER = resources.files("factorizer") / "presets"
ZOO = "zoo:"  # before the name of a model that ships with the package
ZOO_FOLDER = Path(str(resources.files("factorizer") / "zoo"))

FREE = (
    "data.labels",
    "data.regions",
    "data.clip",
    "model.extra",
)  # sections with names of the user's own
MOST_PROBLEMS = 20  # of a preset that are listed
LONGEST = 100  # characters of a value in a message


class PresetError(FactorizerError):
    """A preset that cannot be used; the message says which field, what was got and what is
    allowed."""


def preset_names() -> list[str]:
    """The presets that ship with the package."""
    return sorted(
        file.name.removesuffix(".yaml")
        for file in PRESET_FOLDER.iterdir()
        if file.name.endswith(".yaml")
    )


def zoo_folder() -> Path:
    """Where the models of the zoo are."""
    return ZOO_FOLDER


def zoo_presets() -> list[str]:
    """The models of the zoo, each with the preset it was trained by."""
    if not ZOO_FOLDER.is_dir():
        return []
    return sorted(
        folder.name for folder in ZOO_FOLDER.iterdir() if (folder / "config.yaml").is_file()
    )


def load_preset(name_or_path: str | Path) -> Preset:
    """Read a preset by its name, that of zoo:NAME, or a YAML file by its path (anything with a
    slash or a suffix)."""
    text = str(name_or_path)
    if text.startswith(ZOO):
        name = text.removeprefix(ZOO)
        if name not in zoo_presets():
            hint = suggestion(name, zoo_presets())
            raise PresetError(f"there is no model {text}; `factorizer zoo` lists them{hint}")
        return parse_preset((ZOO_FOLDER / name / "config.yaml").read_text(), text)
    if Path(text).suffix in (".yaml", ".yml") or "/" in text:
        return parse_preset(read_preset_file(Path(text)), text)
    if text not in preset_names():
        raise PresetError(
            f"no preset is named {text!r}{suggestion(text, preset_names())}; choose one of "
            f"{', '.join(preset_names())}"
        )
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
    """A preset from YAML; the error names every field that is wrong."""
    try:
        values = parse_yaml(text)
    except yaml.YAMLError as error:
        raise PresetError(f"{origin} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise PresetError(f"{origin} holds no sections; it must have at least title and data")
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
    """A preset with some fields set, each as path.to.field=value with a value in YAML."""
    values = preset.model_dump(mode="json")
    for change in changes:
        path, sign, text = change.partition("=")
        if not sign:
            raise PresetError(
                f"--set got {change!r}; give path.to.field=value, such as training.max_steps=100"
            )
        *parents, field = path.split(".")
        section: Any = values
        for parent in parents:
            known = [name for name, value in section.items() if isinstance(value, dict)]
            if parent not in known:
                hint = suggestion(parent, known) or suggest_path(values, path, text)
                listed = ", ".join(known) or "none"
                raise PresetError(
                    f"--set got {change!r}; there is no section {parent!r}{hint}; here are {listed}"
                )
            section = section[parent]
        hint = suggest_path(values, path, text)
        if field not in section and hint and ".".join(parents) not in FREE:
            raise PresetError(f"--set got {change!r}; there is no field {path!r}{hint}")
        try:
            value = parse_yaml(text)
        except yaml.YAMLError as error:
            raise PresetError(f"--set got {change!r}; the value is not YAML: {error}") from None
        if not isinstance(section.get(field), str):
            refuse_bare_list(value, change)
        section[field] = value
    return validate_preset(values, "the preset with --set")


def suggest_path(values: Any, path: str, text: str) -> str:
    """Where a field is that was named without its section, or with a wrong one."""
    found = [known for known in field_paths(values) if known.endswith(f".{path}")]
    if not found and "." in path:
        found = [
            known for known in field_paths(values) if known.endswith(f".{path.rpartition('.')[2]}")
        ]
    if not found or path in field_paths(values):
        return ""
    found.sort(key=lambda known: SequenceMatcher(None, known, path).ratio(), reverse=True)
    others = f" (or {', '.join(found[1:4])})" if len(found) > 1 else ""
    return f"; did you mean {found[0]}={text}{others}"


def field_paths(values: Any, before: str = "") -> list[str]:
    """The fields of all sections, as --set names them."""
    paths = []
    for name, value in values.items():
        path = f"{before}{name}"
        if isinstance(value, dict) and path not in FREE:
            paths += field_paths(value, f"{path}.")
        else:
            paths.append(path)
    return paths


def refuse_bare_list(value: Any, change: str) -> None:
    """A list needs brackets: without them 8,16 is text."""
    parts = value.split(",") if isinstance(value, str) else []
    if len(parts) > 1 and all(
        re.fullmatch(r"\s*[-+]?[\d.]+(e[-+]?\d+)?\s*", part) for part in parts
    ):
        path = change.partition("=")[0]
        listed = ",".join(part.strip() for part in parts)
        raise PresetError(f"--set got {change!r}; a list stands in brackets: '{path}=[{listed}]'")


def refuse_idle_options(preset: Preset, changes: Iterable[str]) -> None:
    """What is set on purpose must do something: be of the chosen system, or of an augmentation that
    happens."""
    name = preset.model.name
    known = [*(field for field in options_of(name) if field in Model.model_fields), "name", "extra"]
    for change in changes:
        path = change.partition("=")[0].split(".")
        if path[0] == "model" and len(path) > 1 and path[1] not in known:
            raise PresetError(
                f"--set got {change!r}; {name} has no such option, only {', '.join(known)}"
            )
        augments = (
            path[:2] == ["data", "augmentation"] and len(path) == 4 and path[3] != "probability"
        )
        if augments and not getattr(preset.data.augmentation, path[2]).probability:
            place = ".".join(path[:3])
            raise PresetError(f"--set got {change!r}, but {place}.probability is 0; set that too")


def describe(problem: Any) -> str:
    """One line about one of pydantic's errors."""
    place = ".".join(map(str, problem["loc"])) or "preset"
    if problem["type"] == "extra_forbidden":
        *parents, field = problem["loc"]
        known = list(fields_of(parents))
        return (
            f"{place}: there is no such field{suggestion(str(field), known)}; the fields are "
            f"{', '.join(known)}"
        )
    if problem["type"] == "missing":
        return f"{place}: this field is missing"
    message = problem["msg"].removeprefix("Value error, ")
    whole = problem["type"] == "value_error" and isinstance(
        problem["input"], dict
    )  # its message says what was got
    return (
        f"{place}: {message}" if whole else f"{place}: {message} (got {shorten(problem['input'])})"
    )


def shorten(value: Any) -> str:
    """What was got, cut where it is long."""
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
    """The preset as YAML with every field's text as a comment; reading it gives the same preset."""
    return "\n".join(yaml_lines(preset, indent="")) + "\n"


def yaml_lines(values: Section, indent: str) -> Iterator[str]:
    for name, field in type(values).model_fields.items():
        value = getattr(values, name)
        if isinstance(value, Section):
            yield f"{indent}{name}:  # {field.description}"
            yield from yaml_lines(value, indent + "  ")
        else:
            yield (
                f"{indent}{name}: {scalar(values.model_dump(mode='json')[name])}  # "
                f"{field.description}"
            )


def scalar(value: Any) -> str:
    """A value on one line of YAML."""
    style: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": 10**6}
    text = yaml.safe_dump(value, **style, allow_unicode=True)
    if (
        printable(text) != text
    ):  # what would steer a terminal stands as an escape, which YAML reads back
        text = yaml.safe_dump(value, **style, allow_unicode=False)
    return text.removesuffix("...\n").strip()

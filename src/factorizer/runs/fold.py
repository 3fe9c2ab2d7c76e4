"""One fold of a run, or a model of the zoo: a folder, and what its files say.

A fold has these files, written in this order: config.yaml, cases.json, run.json, log/metrics.csv,
checkpoints/, learning_curve.png, scores.csv. `factorizer tune` adds speeds.json and speeds.png. A
fold that is trained on all cases is named foldall and has no scores.csv. A model of the zoo has
config.yaml, weights.safetensors, weights.sha256, scores.csv, trained_on.json, card.md and
LICENSE.txt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from factorizer.config import Preset
from factorizer.errors import ModelError
from factorizer.evaluation.scores import Score, read_scores, write_scores
from factorizer.files import FileError, read_json, read_text, remove_leftovers, write_atomically
from factorizer.preset_files import CONFIG, ZOO, PresetError, load_preset, to_yaml, zoo_folder
from factorizer.runs import records, rules, speeds
from factorizer.runs.rules import Rules
from factorizer.runs.speeds import Speed

if TYPE_CHECKING:
    from factorizer.runs.run import Run

FoldNumber = int | Literal["all"]  # the fold that is held out; all: none is
PREFIX: Final = "fold"
ALL: Final = "all"


class Fold:
    """The folder of one training. Nothing is read before it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / CONFIG
        self.cases_file = path / "cases.json"
        self.record_file = path / "run.json"
        self.log_file = path / "log" / "metrics.csv"
        self.curve_file = path / "learning_curve.png"
        self.scores_file = path / "scores.csv"
        self.speeds_file = path / "speeds.json"
        self.speeds_figure = path / "speeds.png"
        self.checkpoints = path / "checkpoints"
        self.last_checkpoint = self.checkpoints / "last.ckpt"
        self.previous_checkpoint = self.checkpoints / "previous.ckpt"
        self.best_checkpoint = self.checkpoints / "best.ckpt"
        self.weights_file = path / "weights.safetensors"
        self.checksum_file = path / "weights.sha256"
        self.trained_on_file = path / "trained_on.json"
        self.card_file = path / "card.md"
        self.licence_file = path / "LICENSE.txt"

    def __repr__(self) -> str:
        return f"Fold({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fold) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    @property
    def name(self) -> str:
        """How messages name it: zoo:NAME, or its path."""
        return f"{ZOO}{self.path.name}" if self.is_in_zoo else str(self.path)

    @property
    def is_in_zoo(self) -> bool:
        return self.path.parent == zoo_folder()

    @property
    def number(self) -> FoldNumber | None:
        """Which fold of its run it holds out. None for a folder that is not named like a fold."""
        return parse_fold_name(self.path.absolute().name)  # of the folder that . means

    @property
    def run(self) -> Run:
        """The run that it belongs to."""
        from factorizer.runs.run import Run

        return Run((self.path if self.path.name else self.path.absolute()).parent)

    @property
    def exists(self) -> bool:
        """Whether a training has begun here."""
        return self.config_file.is_file()

    @cached_property
    def preset(self) -> Preset:
        """The preset that it was trained with."""
        return load_preset(self.name if self.is_in_zoo else self.config_file)

    @property
    def max_steps(self) -> int | None:
        """The length that it was planned for. None if it does not exist."""
        return load_preset(self.config_file).training.max_steps if self.exists else None

    def configuration(self) -> str:
        """The text of config.yaml. Missing fields have their defaults, and comments are today's."""
        try:
            return to_yaml(load_preset(self.config_file))
        except PresetError:
            return read_text(self.config_file)

    def has_preset(self, preset: Preset) -> bool:
        """Whether config.yaml says the same as a preset, regions in the same order too."""
        return self.configuration() == to_yaml(preset)

    def write_preset(self, preset: Preset) -> None:
        write_atomically(self.config_file, to_yaml(preset))
        self.__dict__.pop("preset", None)  # the one that was read before

    def cases(self) -> dict[str, str]:
        """The cases that it began with, and the names of their entries in the cache."""
        cases = read_json(self.cases_file)
        if not isinstance(cases, dict) or not all_texts(cases.values()):
            message = "it is not a table of cases"
            raise FileError(self.cases_file, message, "restore it, or give another folder")
        return cases

    def write_cases(self, entries: Mapping[str, Path]) -> None:
        """Write down the cases that it begins with, unless the file exists."""
        if not self.cases_file.exists():
            text = json.dumps(case_keys(entries), indent=0)
            write_atomically(self.cases_file, text + "\n")

    def held_out(self) -> set[str]:
        """The cases of its run that it must not be trained on."""
        return {case for case, fold in self.run.fold_of_case().items() if fold == self.number}

    def trained_on(self) -> set[str]:
        """The cases that it was trained on.

        A model of the zoo lists them itself. They are not known for a fold that was copied out of
        its run: the result is then empty.
        """
        names: set[str] = set()
        if self.trained_on_file.is_file():
            names |= self.listed_cases()
        if self.cases_file.is_file() and self.run.folds_file.is_file():
            names |= self.cases().keys() - self.held_out()
        return names

    def listed_cases(self) -> set[str]:
        """The cases in trained_on.json."""
        with self.named_errors():
            names = read_json(self.trained_on_file)
            if not isinstance(names, list) or not all_texts(names):
                message = "it does not list names of cases"
                raise FileError(self.trained_on_file, message, "restore it, or remove it")
        return set(names)

    def write_trained_on(self, names: Collection[str]) -> None:
        """List the cases that it was trained on."""
        write_atomically(self.trained_on_file, json.dumps(sorted(names), indent=0) + "\n")

    def scores(self) -> list[Score]:
        """The scores of the held-out cases."""
        with self.named_errors():
            return read_scores(self.scores_file)

    def write_scores(self, rows: list[Score]) -> None:
        """Write the scores of the held-out cases. With them the fold is finished."""
        write_scores(self.scores_file, rows)

    def starts(self) -> list[dict[str, Any]]:
        """Every start of the training, the first one first."""
        return records.read_starts(self.record_file)

    def write_starts(self, starts: list[dict[str, Any]]) -> None:
        records.write_starts(self.record_file, starts)

    def first_weights(self) -> str | None:
        """The model that the training began with, if it did not begin with random weights."""
        starts = self.starts()
        init: str | None = starts[0].get("init") if starts else None
        return init

    @property
    def is_finished(self) -> bool:
        """Whether it was trained to its end: it has scores, or made all its steps on all cases."""
        if self.is_in_zoo:
            return True
        if self.number != ALL:
            return self.scores_file.is_file()
        starts, steps = self.starts(), self.max_steps
        return bool(starts) and steps is not None and starts[-1].get("step", 0) >= steps

    def is_finished_for(self, max_steps: int) -> bool:
        """Whether it is finished and as long as wanted.

        The length is looked at first: an extension moves the scores away before it writes the new
        length.
        """
        steps = self.max_steps
        return steps is not None and steps >= max_steps and self.is_finished

    def speed(self, name: str) -> Speed:
        """A faster setting that was tuned for it."""
        with self.named_errors():
            return speeds.read_speed(self.speeds_file, name, self.name)

    def write_speeds(self, tuned: Mapping[str, Speed]) -> None:
        speeds.write_speeds(self.speeds_file, tuned)

    def rules(self, regions: list[str]) -> Rules:
        """The rules of post-processing of its own folder, or otherwise of its run."""
        for file in (self.path / rules.FILE, self.run.rules_file):
            if file.is_file():
                with self.named_errors():
                    return rules.read_rules(file, regions)
        raise ModelError(
            f"{self.name} has no {rules.FILE}; `factorizer postprocess` chooses the rules on a "
            "cross-validation"
        )

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Name the model in errors about its files: zoo:NAME, not the folder of the package."""
        try:
            yield
        except FileError as error:
            if not self.is_in_zoo:
                raise
            file = error.file.replace(str(self.path), self.name)
            raise FileError(file, error.reason, "install the package again") from None

    def remove_traces(self) -> None:
        """Remove files that a killed training left half written.

        Only the process that holds the fold may do so.
        """
        if not self.exists:
            self.cases_file.unlink(missing_ok=True)  # perhaps of another preset
        own = (self.config_file, self.cases_file, self.record_file, self.log_file)
        remove_leftovers(*own, self.scores_file, self.curve_file)

    def is_trace(self, path: Path) -> bool:
        """Whether a file can be from a training that was killed before it wrote config.yaml."""
        beginnings = (f".{self.cases_file.name}.", f".{CONFIG}.")
        return path == self.cases_file or path.name.startswith(beginnings)


def fold_name(number: FoldNumber) -> str:
    """fold0, fold1, ..., foldall."""
    return f"{PREFIX}{number}"


def parse_fold_name(name: str) -> FoldNumber | None:
    """The number in fold0, fold1, ... or foldall. None for any other name."""
    if name == fold_name(ALL):
        return ALL
    match = re.fullmatch(rf"{PREFIX}([0-9]+)", name)
    return int(match[1]) if match else None


def case_keys(entries: Mapping[str, Path]) -> dict[str, str]:
    """Names of cases and of their entries in the cache."""
    return {name: entry.name for name, entry in sorted(entries.items())}


def all_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)

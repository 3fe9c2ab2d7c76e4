"""`factorizer explain`: what layers see (Fig. 6), and how well it agrees with regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from factorizer.config import Data
from factorizer.data.attempts import attempt
from factorizer.data.capacity import refuse_too_large
from factorizer.data.cases import Case, Problem
from factorizer.data.images import VoxelGrid, check_dimensions, read_image, read_label
from factorizer.data.inputs import read_inputs
from factorizer.errors import FactorizerError
from factorizer.evaluation.references import References
from factorizer.figures.escapes import escape_cell
from factorizer.figures.layers import SHOWN, Row, draw_components
from factorizer.files import csv_text, require_empty_folder, write_atomically
from factorizer.inference.load import load
from factorizer.inference.predictor import Predictor
from factorizer.inspection.alignment import Agreement, Alignment, columns_of, summarize
from factorizer.inspection.components import Layer, choose_layers, layers_of
from factorizer.nn.blocks import ResidualNMF
from factorizer.progress import SILENT, Progress
from factorizer.studies.named import split_name
from factorizer.studies.true_labels import find_references
from factorizer.studies.views import (
    Array,
    View,
    align_view,
    view_layers,
    write_components,
    write_factors,
)

FLOAT = 4  # bytes of a voxel of a component
COPIES, COPIES_WITH_FILES = 2, 5  # of a layer's components that are in memory at a time
LEAST_GAIN = 0.01  # a component with less is not named after a region


@dataclass(frozen=True, eq=False)
class Explanation:
    """How well the components of each model agree with regions.

    `tables` is empty if no case has a reference. `problems` says why cases were skipped. `files`
    were written.
    """

    tables: Mapping[str, Sequence[Agreement]]
    problems: Sequence[Problem]
    files: Sequence[Path]


def explain(
    models: Sequence[str | Path],
    inputs: Sequence[Path],
    *,
    out: Path,
    layers: str = "both",
    references: Path | None = None,
    volumes: bool = False,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Explanation:
    """Write the components of layers for each case, and measure how they agree with regions.

    The components of a convolutional block are its channels. A case that fails is a problem of
    this case, and the others are explained.

    Args:
        models: RUN, RUN/foldK or zoo:NAME, also as NAME=MODEL. All are drawn in one figure.
        inputs: Images as `predict` takes them.
        out: A new or empty folder. A figure is written for each case, and tables for each model.
        layers: first, last, both, all, or numbers along the data path such as 1,5.
        references: True labels: a folder of files, or a data set. By default those of the data set
            that holds the inputs.
        volumes: Whether to write the components as NIfTI files (.npz in 2D).
        device: auto, cpu, cuda or mps.
        progress: Where lines and bars go.

    Example:
        >>> models, inputs = ["runs/strokes/fold0"], [Path("strokes")]
        >>> found = factorizer.explain(models, inputs, out=Path("components"))
        >>> list(found.tables)
        ['swin-factorizer']
    """
    require_empty_folder(out)
    loaded = load_models(models, device, progress)
    data = shared_data(loaded)
    chosen = {}
    for name, model in loaded.items():
        chosen[name] = choose_layers(layers_of(model.networks[0]), layers)
    cases, problems = read_inputs(inputs, data.channels, mask_suffix=data.mask_suffix)
    known = find_references(references, inputs, cases, data)
    explainer = Explainer(loaded, chosen, out, references=known, volumes=volumes)
    for case in progress.track(cases, "explaining"):
        _, failures = attempt(case.name, partial(explainer.explain, case))
        problems += failures
    tables = explainer.write_tables()
    return Explanation(tables, problems, explainer.files)


def load_models(
    models: Sequence[str | Path], device: str, progress: Progress = SILENT
) -> dict[str, Predictor]:
    """The models by name: the name given, or that of the system."""
    if not models:
        raise FactorizerError("no model is given; give at least one")
    loaded: dict[str, Predictor] = {}
    for source in models:
        given, path = split_name(source)
        model = load(path, device=device, progress=progress)
        name = given or model.preset.model.name
        if name in loaded:
            raise FactorizerError(
                f"two models are named {name}; give each its own name, as NAME=MODEL"
            )
        loaded[name] = model
    return loaded


def shared_data(models: Mapping[str, Predictor]) -> Data:
    """The data section of the models' presets, which must be the same for all."""
    first, *others = models
    data = models[first].preset.data
    for name in others:
        if models[name].preset.data != data:
            raise FactorizerError(
                f"the presets of {name} and {first} have different data sections; give models "
                "of the same data"
            )
    return data


class Explainer:
    """Explains cases one by one, and collects how the components agree with regions."""

    def __init__(
        self,
        models: Mapping[str, Predictor],
        layers: Mapping[str, Sequence[Layer]],
        out: Path,
        *,
        references: References,
        volumes: bool,
    ) -> None:
        self.models = models
        self.layers = layers
        self.out = out
        self.references = references
        self.volumes = volumes
        self.data = shared_data(models)
        self.regions = self.data.targets.region_names
        self.rows: dict[str, list[Alignment]] = {name: [] for name in models}
        self.files: list[Path] = []

    def explain(self, case: Case) -> None:
        """Write the figure, the components and the factors of a case.

        Its rows are collected at the end: a case is in the tables of all models, or of none.
        """
        check_dimensions(case, len(self.data.patch_size))
        volume = read_image(case, self.data.channels)
        label = self.read_reference(case, volume.grid)
        masks = None if label is None else self.data.targets.masks(label)
        self.check_memory(case, volume.array[0].size)
        drawn: list[Row] = []
        found: dict[str, list[Alignment]] = {name: [] for name in self.models}
        for name, model in self.models.items():
            prepared = model.prepare(case, self.data.channels)
            for view in view_layers(model, prepared, self.layers[name]):
                rows = []
                if masks is not None:
                    rows = align_view(case.name, view, volume.array, masks, self.regions)
                found[name] += rows
                drawn.append(pick_components(f"{name}\nlayer {view.layer}", view, rows))
                self.write_view(case, name, view, volume.grid)
        figure = draw_components(volume.array, self.data.channels, label, self.data.labels, drawn)
        self.write(self.out / f"{case.name}.png", figure)
        for name, rows in found.items():
            self.rows[name] += rows

    def read_reference(self, case: Case, grid: VoxelGrid) -> Array | None:
        """The true label map of a case, if it is known."""
        reference = self.references.cases.get(case.name)
        return None if reference is None else read_label(reference, self.references.values, grid)

    def check_memory(self, case: Case, voxels: int) -> None:
        """Raise if the components of the widest layer do not fit into memory."""
        widths = []
        for layers in self.layers.values():
            widths += [count_components(layer) for layer in layers]
        copies = COPIES_WITH_FILES if self.volumes else COPIES
        wanted = copies * FLOAT * max(widths) * voxels
        what = f"a layer of {max(widths)} components"
        remedy = "choose other layers, write no volumes, or give a smaller image"
        refuse_too_large(case.name, "", wanted, what, remedy)

    def write_view(self, case: Case, name: str, view: View, grid: VoxelGrid) -> None:
        """Write the components of a layer if they are wanted, and its factors if it has some."""
        folder, stem = self.out / case.name, f"{name}-layer{view.layer}"
        if self.volumes:
            self.files.append(write_components(folder, stem, view, case, grid))
        if view.factors is not None:
            self.files.append(write_factors(folder, stem, view.factors))

    def write(self, file: Path, content: str | bytes) -> None:
        write_atomically(file, content)
        self.files.append(file)

    def write_tables(self) -> dict[str, list[Agreement]]:
        """Write alignment-MODEL.csv with all cases and agreement-MODEL.csv with their means.

        The means are returned by model. A model without rows has no table.
        """
        tables = {}
        for name, rows in self.rows.items():
            if rows:
                tables[name] = summarize(rows)
                self.write(self.out / f"alignment-{name}.csv", as_csv(Alignment, rows))
                self.write(self.out / f"agreement-{name}.csv", as_csv(Agreement, tables[name]))
        return tables


def as_csv(kind: type[Alignment] | type[Agreement], rows: Sequence[Any]) -> str:
    """Rows as a table."""
    lines = [[safe_cell(value) for value in astuple(row)] for row in rows]
    return csv_text(columns_of(kind), lines)


def safe_cell(value: Any) -> Any:
    """A cell that no spreadsheet computes. Names of cases and regions may be anything."""
    return escape_cell(value) if isinstance(value, str) else value


def count_components(layer: Layer) -> int:
    """How many components a layer has."""
    if isinstance(layer.part, ResidualNMF):
        wrapped = layer.part.wrapped_nmf
        heads = wrapped.in_proj.out_features // wrapped.matricize.head_dim
        return heads * wrapped.nmf.terms
    first_weights = next(layer.part.parameters())
    return first_weights.shape[0]


def pick_components(title: str, view: View, rows: Sequence[Alignment]) -> Row:
    """The components to draw: all if they are few, otherwise those that agree best with a region.

    A component that agrees better than chance is named after its region.
    """
    best: dict[int, Alignment] = {}  # the best region of each component
    for row in rows:
        known = best.get(row.component)
        if row.gain > LEAST_GAIN and (known is None or row.gain > known.gain):
            best[row.component] = row
    numbers = list(range(1, len(view.components) + 1))
    if len(numbers) > SHOWN and best:
        by_gain = sorted(numbers, key=lambda number: -best[number].gain if number in best else 0.0)
        numbers = sorted(by_gain[:SHOWN])
    numbers = numbers[:SHOWN]
    captions = [caption_of(number, best.get(number)) for number in numbers]
    places = [number - 1 for number in numbers]
    return Row(title, view.components[places], captions)


def caption_of(number: int, best: Alignment | None) -> str:
    """The number of a component, and the region that it agrees with best."""
    return str(number) if best is None else f"{number}: {best.region}, Dice {best.dice:.2f}"

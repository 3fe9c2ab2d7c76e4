"""What `factorizer explain` writes: per case a figure, volumes and factors, and over the cases
tables."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from factorizer.data.attempts import attempt
from factorizer.data.cases import Case, DataError, Problem
from factorizer.data.images import check_dimensions, read_image, read_label, restore_orientation
from factorizer.data.outputs import encode_nifti, first_file
from factorizer.figures.escapes import escape_cell
from factorizer.figures.layers import SHOWN, Row, draw_components
from factorizer.files import csv_text, write_atomically
from factorizer.hardware import GIB, usable_bytes
from factorizer.inference.predictor import Predictor
from factorizer.inspection.alignment import Agreement, Alignment, summarize
from factorizer.inspection.components import Layer, choose_layers, layers_of
from factorizer.nn.blocks import ResidualNMF
from factorizer.studies.views import View, align_view, view_layers


class Explainer:
    """Looks into one or several models case by case, and collects how their pictures agree with
    regions."""

    def __init__(
        self,
        models: Mapping[str, Predictor],
        layer: str,
        out: Path,
        *,
        references: Mapping[str, Case],
        label_values: Mapping[int, int],
        write_volumes: bool,
    ) -> None:
        self.models, self.layer, self.out, self.write_volumes = models, layer, out, write_volumes
        self.references, self.label_values = references, label_values
        self.rows: dict[str, list[Alignment]] = {name: [] for name in models}
        self.data = next(iter(models.values())).preset.data

    def explain(self, case: Case) -> Sequence[Problem]:
        """Write all about a case; what prevents it, if something does."""
        return attempt(case.name, partial(self.look, case))[1]

    def look(self, case: Case) -> None:
        data = self.data
        check_dimensions(case, len(data.patch_size))
        volume = read_image(case, data.channels)
        reference = self.references.get(case.name)
        label = (
            read_label(reference, self.label_values, volume.grid) if reference is not None else None
        )
        masks = data.targets.masks(label) if label is not None else None
        for model in self.models.values():
            self.check_memory(model, case, volume.array[0].size)
        drawn: list[Row] = []
        found: dict[str, list[Alignment]] = {name: [] for name in self.models}
        for name, model in self.models.items():
            prepared = model.prepare(case, data.channels)
            for view in view_layers(
                model, prepared, choose_layers(layers_of(model.networks[0]), self.layer)
            ):
                rows = (
                    align_view(case, view, volume.array, masks, list(data.regions))
                    if masks is not None
                    else []
                )
                found[name] += rows
                drawn.append(pick_pictures(f"{name}\nlayer {view.layer}", view, rows))
                self.write_view(case, name, view, volume.grid)
        figure = draw_components(volume.array, data.channels, label, data.labels, drawn)
        write_atomically(self.out / f"{case.name}.png", figure)
        for name, rows in found.items():  # all models have the case, or none
            self.rows[name] += rows

    def check_memory(self, model: Predictor, case: Case, voxels: int) -> None:
        """Whether the pictures of the widest layer fit, held twice, and with their files five
        times."""
        widths = [
            layer_width(chosen)
            for chosen in choose_layers(layers_of(model.networks[0]), self.layer)
        ]
        copies = 5 if self.write_volumes else 2
        wanted, free = copies * 4 * max(widths) * voxels, usable_bytes()
        if wanted > free:
            message = (
                f"{max(widths)} pictures of a layer take {wanted / GIB:.1f} GiB, {free / GIB:.1f} "
                "GiB are free"
            )
            remedy = (
                "choose other layers with --layer, write no volumes with --no-volumes, or give a "
                "smaller image"
            )
            raise DataError(Problem(case.name, "", message, remedy))

    def write_view(self, case: Case, name: str, view: View, grid: Any) -> None:
        place = self.out / case.name / f"{name}-layer{view.layer}"
        if self.write_volumes:
            turned = np.moveaxis(restore_orientation(view.pictures, grid), 0, -1).astype(np.float32)
            if len(grid.shape) == 3:
                write_atomically(
                    place.with_name(place.name + ".nii.gz"), encode_nifti(turned, first_file(case))
                )
            else:
                buffer = io.BytesIO()
                np.savez_compressed(buffer, pictures=turned)
                write_atomically(place.with_name(place.name + ".npz"), buffer.getvalue())
        if view.factors is not None:
            terms = view.factors.shape[-1]
            lines = [
                (head * terms + term + 1, head + 1, term + 1, channel + 1, f"{value:.6g}")
                for (head, channel, term), value in np.ndenumerate(view.factors)
            ]
            text = csv_text(("picture", "head", "term", "channel", "value"), lines)
            write_atomically(place.with_name(place.name + "-factors.csv"), text)

    def write_tables(self) -> list[Path]:
        """alignment-MODEL.csv with every case, agreement-MODEL.csv over the cases."""
        files = []
        for name, rows in self.rows.items():
            if rows:
                for kind, of, table in (
                    ("alignment", Alignment, rows),
                    ("agreement", Agreement, summarize(rows)),
                ):
                    files.append(self.out / f"{kind}-{name}.csv")
                    lines = [[safe_cell(value) for value in astuple(row)] for row in table]
                    write_atomically(
                        files[-1], csv_text([field.name for field in fields(of)], lines)
                    )
        return files


def safe_cell(value: Any) -> Any:
    """Names of cases and regions are others' words."""
    return escape_cell(value) if isinstance(value, str) else value


def layer_width(layer: Layer) -> int:
    """How many pictures a layer has."""
    if isinstance(layer.part, ResidualNMF):
        wrapped = layer.part.wrapped_nmf
        return wrapped.in_proj.out_features // wrapped.matricize.head_dim * wrapped.nmf.terms
    return next(p.shape[0] for p in layer.part.parameters())


def pick_pictures(title: str, view: View, rows: Sequence[Alignment]) -> Row:
    """The pictures to draw: all if they are few, else those that agree best with a region, beyond
    chance."""
    best: dict[int, Alignment] = {}
    for row in rows:
        if row.gain > 0.01 and (row.picture not in best or row.gain > best[row.picture].gain):
            best[row.picture] = row
    order = list(range(1, len(view.pictures) + 1))
    if len(order) > SHOWN and best:
        order = sorted(sorted(order, key=lambda p: -best[p].gain if p in best else 0.0)[:SHOWN])
    captions = [
        f"{p}: {best[p].region}, Dice {best[p].dice:.2f}" if p in best else str(p)
        for p in order[:SHOWN]
    ]
    return Row(title, view.pictures[[p - 1 for p in order[:SHOWN]]], captions)

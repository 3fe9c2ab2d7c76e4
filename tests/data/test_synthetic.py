"""Synthetic scans: real layouts, reproducible, plausible, and hard for single voxels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import label as find_components
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.data.check import check_cohort
from factorizer.data.images import read_image, read_label
from factorizer.data.layouts import read_cohort
from factorizer.data.matching import select_channels, select_label_values
from factorizer.data.preprocess import zscore
from factorizer.data.synthetic import KINDS, make_synthetic, write_synthetic
from factorizer.preset_files import load_preset
from testkit.bars import CountedBars

runner = CliRunner()


@pytest.mark.parametrize(
    ("kind", "layout"), [("brats", "msd"), ("isles22", "isles"), ("hippocampus", "msd")]
)
def test_every_kind_has_the_layout_of_the_real_data_set(
    tmp_path: Path, kind: str, layout: str
) -> None:
    folder = tmp_path / kind
    result = runner.invoke(
        app, ["data", "synth", kind, "-o", str(folder), "--cases", "3", "--size", "32"]
    )
    assert result.exit_code == 0, result.output
    cohort = read_cohort(folder)
    assert cohort.layout == layout
    report = check_cohort(cohort)
    assert report.problems == []
    assert len(report.cases) == 3
    if kind in ("brats", "isles22"):
        data = load_preset(kind).data
        assert select_channels(cohort, data.channels) == data.channels
        assert set(select_label_values(cohort, data.labels).values()) == {0, *data.labels.values()}


def test_strokes_have_thick_slices_and_empty_cases_among_them(tmp_path: Path) -> None:
    write_synthetic("isles22", tmp_path / "set", cases=7, size=32, seed=0)
    report = check_cohort(read_cohort(tmp_path / "set"))
    assert {round(case.spacing_mm[2]) for case in report.cases} == {2, 6}
    assert report.empty_cases == ["sub-strokecase0007"]
    volumes = [case.region_ml["lesion"] for case in report.cases[:6] if case.region_ml]
    assert max(volumes) > 3 * min(volumes)


def test_only_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    images = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_synthetic("hippocampus", tmp_path / name, cases=2, size=32, seed=seed)
        images.append(read_image(read_cohort(tmp_path / name).cases[1]).array)
    assert np.array_equal(images[0], images[1])
    assert not np.array_equal(images[0], images[2])


def test_more_cases_do_not_change_the_first(tmp_path: Path) -> None:
    for name, cases in (("a", 1), ("b", 2)):
        write_synthetic("brats", tmp_path / name, cases=cases, size=32, seed=0)
    one, two = (read_image(read_cohort(tmp_path / name).cases[0]).array for name in "ab")
    np.testing.assert_array_equal(one, two)


def test_nothing_is_overwritten_and_wrong_arguments_are_named(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    result = runner.invoke(app, ["data", "synth", "brats", "-o", str(tmp_path), "--cases", "1"])
    assert result.exit_code == 2
    assert "the folder is not empty" in result.stderr
    wrong = runner.invoke(app, ["data", "synth", "brain", "-o", str(tmp_path / "new")])
    assert wrong.exit_code == 2
    assert f"choose one of {', '.join(KINDS)}" in wrong.stderr
    small = runner.invoke(
        app, ["data", "synth", "brats", "-o", str(tmp_path / "new"), "--size", "8"]
    )
    assert "at least 1 case of size 24" in small.stderr
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def tumours(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[np.ndarray, np.ndarray]]:
    folder = tmp_path_factory.mktemp("synthetic") / "set"
    write_synthetic("brats", folder, cases=12, size=48, seed=0)
    cohort = read_cohort(folder)
    scans = []
    for case in cohort.cases:
        volume = read_image(case)
        scans.append((volume.array, read_label(case, cohort.label_values, volume.grid)))
    return scans


@pytest.mark.slow
def test_brains_are_plausible(tumours) -> None:
    for image, label in tumours:
        inside = image.any(0)
        assert 0.15 < inside.mean() < 0.6
        assert find_components(inside)[1] == 1  # one brain, skull-stripped
        assert not label[~inside].any()
        left, right = inside[:24], inside[24:][::-1]
        assert not np.array_equal(left, right)  # not a mirror image


@pytest.mark.slow
def test_tumours_have_a_core_inside_a_rim_inside_oedema(tumours) -> None:
    for _, label in tumours:
        assert {1, 2, 3} == set(np.unique(label[label > 0]))
        radii = []
        centre = np.argwhere(label == 2).mean(0)
        for value in (2, 3, 1):
            radii.append(np.linalg.norm(np.argwhere(label == value) - centre, axis=1).mean())
        assert radii == sorted(radii)


def test_contrasts_look_like_mri(tumours) -> None:
    """Enhancing tumour shines on T1Gd, oedema on FLAIR, necrosis is dark on T1Gd."""
    for image, label in tumours:
        flair, _, t1gd, _ = (channel / np.median(channel[channel > 0]) for channel in image)
        assert t1gd[label == 3].mean() > 1.2 * t1gd[label == 1].mean()
        assert flair[label == 1].mean() > 1.2 * flair[label == 2].mean()
        assert t1gd[label == 2].mean() < t1gd[label == 1].mean()


@pytest.mark.slow
def test_single_voxels_do_not_reveal_tumours(tumours) -> None:
    """The best logistic regression on four intensities stays far below what shapes allow."""
    data = load_preset("brats").data
    voxels, masks = [], []
    for image, label in tumours:
        inside = image.any(0)
        voxels.append(zscore(image, nonzero=True)[:, inside].T)
        masks.append(data.targets.masks(label)[:, inside])
    x, unseen = np.concatenate(voxels[:8]), voxels[8:]
    scores = []
    for region in range(len(data.regions)):
        y = np.concatenate([mask[region] for mask in masks[:8]])
        model = LogisticRegression().fit(x, y)
        seen = model.predict_proba(x)[:, 1]
        threshold = max(np.linspace(0.05, 0.9, 18), key=lambda t, y=y, seen=seen: dice(seen > t, y))
        for voxel, mask in zip(unseen, masks[8:], strict=True):
            scores.append(dice(model.predict_proba(voxel)[:, 1] > threshold, mask[region]))
    assert 0.1 < np.mean(scores) < 0.6


def dice(a: np.ndarray, b: np.ndarray) -> float:
    return float(2 * np.count_nonzero(a & b) / max(1, a.sum() + b.sum()))


def test_different_seeds_give_cases_different_names(tmp_path: Path) -> None:
    bars = CountedBars()
    first = make_synthetic("isles22", tmp_path / "a", cases=2, size=24, progress=bars)
    second = make_synthetic("isles22", tmp_path / "b", cases=2, size=24, seed=3)
    assert first == ["sub-strokecase0001", "sub-strokecase0002"]
    assert second == ["sub-strokecase3001", "sub-strokecase3002"]
    assert [case.name for case in read_cohort(tmp_path / "a").cases] == first
    assert bars.done == {"drawing scans": (2, 2)}

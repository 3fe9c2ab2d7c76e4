"""Single bright voxels give a warning whenever an image is read for a user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.data.cache import CaseStore, Preparation
from factorizer.data.cases import Case, Source
from factorizer.data.images import Volume, VoxelGrid, read_image
from factorizer.data.layouts import read_cohort
from factorizer.data.preprocess import Preprocessing, prepare_case
from factorizer.data.spikes import note_spikes
from factorizer.training.training_cases import TrainingCases, prepare_cases
from testkit.telling import Listener
from testkit.writing import random_image, write_msd, write_nifti

PLACE = (3, 4, 5)
FLIPPED = np.diag((-1.0, 1.0, 1.0, 1.0))


def spiked(value: float = 1e5) -> np.ndarray:
    image = random_image(0)
    image[PLACE] = value
    return image


@pytest.mark.parametrize("value", [1e5, -1e5, 3e38])
def test_a_spike_is_named_with_its_channel_and_place(tmp_path: Path, value: float) -> None:
    files = [
        write_nifti(tmp_path / f"{i}.nii.gz", x, FLIPPED)
        for i, x in enumerate((random_image(1), spiked(value)))
    ]
    volume = read_image(Case("case", {"A": Source(files[0]), "B": Source(files[1])}))
    (problem,) = note_spikes("case", ("A", "B"), volume)
    assert problem.severity == "warning"
    assert "channel B has 1 voxel more than 50 times" in problem.message
    assert f"{abs(value):.4g} at voxel {PLACE}" in problem.message


def test_real_signal_is_not_a_spike() -> None:
    generator = np.random.default_rng(0)
    hot = generator.normal(100, 10, (40, 40, 40))
    hot[20:25, 20:25, 20:25] = 1e5  # a lesion, two in a thousand voxels
    for array in (
        generator.lognormal(0, 1, (40, 40, 40)),
        hot,
        np.ones((4, 4, 4)),
        np.zeros((4, 4, 4)),
    ):
        grid = VoxelGrid(array.shape, np.eye(4))
        assert note_spikes("case", ["T1"], Volume(array[None].astype(np.float32), grid)) == []


def test_a_spike_that_is_clipped_or_not_normalized_gives_no_warning(tmp_path: Path) -> None:
    case = Case("case", {"T1": Source(write_nifti(tmp_path / "image.nii.gz", spiked()))})
    for options, found in (({}, 1), ({"clip": ((0.0, 100.0),)}, 0), ({"normalization": "none"}, 0)):
        prepared = prepare_case(case, Preprocessing(**options), channels=("T1",))
        assert len(prepared.warnings) == found


def test_data_check_names_a_spike(tmp_path: Path) -> None:
    write_msd(tmp_path, channels=["T1"])
    write_nifti(tmp_path / "imagesTr" / "case_001.nii.gz", spiked())
    result = CliRunner().invoke(app, ["data", "check", str(tmp_path)])
    assert result.exit_code == 0
    assert "warning case_001: channel T1 has 1 voxel more than 50 times" in result.stderr
    assert "case_000" not in result.stderr


def test_training_names_a_spike_and_keeps_the_case(tmp_path: Path) -> None:
    write_msd(tmp_path / "set", cases=2, channels=["T1"])
    write_nifti(tmp_path / "set" / "imagesTr" / "case_001.nii.gz", spiked())
    for _ in range(2):  # made, and found in the cache
        preparation = Preparation(("T1",), {0: 0, 1: 1, 2: 2, 3: 3}, Preprocessing())
        cohort, said = read_cohort(tmp_path / "set"), []
        store = CaseStore(tmp_path / "cache", cohort.cases, preparation)
        cases = TrainingCases(cohort, preparation, {}, "", ["case_000"], ["case_001"])
        prepare_cases(store, cases, Listener(said))
        assert len(said) == 1
        assert said[0].startswith("warning: case_001: channel T1 has 1 voxel more than 50 times")
        assert sorted(store.entries) == ["case_000", "case_001"]


def test_a_spike_does_not_turn_the_rest_into_background(tmp_path: Path) -> None:
    """Small values are taken for rounded zeros by their share of the range, which is not that of
    one voxel."""
    case = Case("case", {"T1": Source(write_nifti(tmp_path / "image.nii.gz", spiked(1e9)))})
    prepared = prepare_case(case, Preprocessing(normalization="none"), channels=("T1",))
    np.testing.assert_array_equal(prepared.image[0], spiked(1e9))

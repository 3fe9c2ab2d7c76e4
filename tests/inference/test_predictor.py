"""From an image to a label map on its grid, with a network that copies a channel."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from nibabel.affines import apply_affine
from torch import Tensor, nn

from factorizer.config import Preset
from factorizer.data.cases import DataError
from factorizer.inference.predictor import Predictor
from factorizer.preset_files import change_preset, load_preset

ORIENTATIONS = list(product(permutations(range(3)), product((1, -1), repeat=3)))
BRATS = load_preset("brats")


class Oracle(nn.Module):
    """Logits are the image itself: the channels are the regions."""

    def forward(self, x: Tensor) -> Tensor:
        return 20 * (x - 0.5)


def oracle(**changes: object) -> Predictor:
    values = {
        "data.channels": "[ET,TC,WT]",
        "data.patch_size": "[8,8,8]",
        "data.normalization": "none",
        "data.crop_to_nonzero": "false",
        "data.spacing_mm": "null",
    } | changes
    preset = change_preset(BRATS, [f"{field}={value}" for field, value in values.items()])
    return Predictor(preset, [Oracle()])


def regions_of(labels: np.ndarray, preset: Preset) -> np.ndarray:
    data = preset.data
    masks = [
        np.isin(labels, [data.labels[name] for name in names]) for names in data.regions.values()
    ]
    return np.stack(masks).astype(np.float32)


def affine_of(
    order: tuple[int, ...], signs: tuple[int, ...], spacing: tuple[float, ...]
) -> np.ndarray:
    affine = np.eye(4)
    affine[:3, :3] = 0
    for axis, (world, sign) in enumerate(zip(order, signs, strict=True)):
        affine[world, axis] = sign * spacing[axis]
    affine[:3, 3] = (5.0, -7.0, 11.0)
    return affine


@pytest.mark.parametrize("crop", ["true", "false"])
@pytest.mark.parametrize(("order", "signs"), ORIENTATIONS)
def test_predictions_lie_where_the_image_does(order, signs, crop: str) -> None:
    """All 48 orientations, anisotropic voxels, odd sizes: the label map is the reference voxel by
    voxel."""
    predictor = oracle(**{"data.crop_to_nonzero": crop})
    labels = np.random.default_rng(0).integers(0, 4, (7, 13, 10)).astype(np.uint8)
    labels[:2], labels[:, -3:] = 0, 0  # something to crop
    image = regions_of(labels, predictor.preset)
    affine = affine_of(order, signs, (0.7, 1.3, 5.0))
    np.testing.assert_array_equal(predictor.predict(image, affine=affine), labels)


def test_a_resampled_prediction_stays_in_its_place() -> None:
    """A ball, on a grid of 1 x 1 x 3 mm, predicted at 2 mm: its centre stays, its volume about."""
    predictor = oracle(**{"data.spacing_mm": "[2.0,2.0,2.0]"})
    shape, affine = (41, 37, 15), np.diag((-1.0, 1.0, 3.0, 1.0))
    points = apply_affine(affine, np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1))
    inside = np.linalg.norm(points - (-22.0, 17.0, 20.0), axis=-1) < 12
    labels = np.where(inside, 3, 0).astype(np.uint8)
    found = predictor.predict(regions_of(labels, predictor.preset), affine=affine) == 3
    np.testing.assert_allclose(points[found].mean(0), points[inside].mean(0), atol=0.3)
    assert 0.9 < found.sum() / inside.sum() < 1.1


def test_an_image_that_does_not_fit_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"shape \(2, 9, 9, 9\); this model takes 3D images of 3 channels \(ET, TC, WT\)",
    ):
        oracle().predict(np.zeros((2, 9, 9, 9)))


@pytest.mark.parametrize("spacing", [2.0, 3.0, 5.0, 6.0])
def test_thick_slices_along_any_axis_come_back_in_place(spacing: float) -> None:
    """Blocks of whole slices, predicted at 1 mm: every slice comes back as it was."""
    for axis in range(3):
        predictor = oracle(**{"data.spacing_mm": "[1.0,1.0,1.0]"})
        sizes, shape = [1.0, 1.0, 1.0], [20, 20, 20]
        sizes[axis], shape[axis] = spacing, 12
        labels = np.zeros(shape, np.uint8)
        labels[tuple(slice(4, 9) for _ in range(3))] = 3
        found = predictor.predict(
            regions_of(labels, predictor.preset), affine=np.diag([*sizes, 1.0])
        )
        np.testing.assert_array_equal(found, labels)


def test_wrong_calls_of_the_python_interface_are_named() -> None:
    image = np.zeros((3, 8, 8, 8), np.float32)
    with pytest.raises(ValueError, match="NaN or infinite"):
        oracle().predict(image + np.nan)
    with pytest.raises(ValueError, match=r"spacing_mm is \(1.0, 1.0, 1.0, 2.0\); give 3 numbers"):
        oracle().predict(image, spacing_mm=np.array([1, 1, 1, 2]))
    with pytest.raises(ValueError, match="give a regular 4 x 4 matrix"):
        oracle().predict(image, affine=np.zeros((4, 4)))


def test_a_model_with_a_spacing_asks_for_that_of_the_image() -> None:
    image = np.ones((3, 8, 8, 8), np.float32)
    with pytest.raises(
        ValueError, match=r"works at 2 x 2 x 3 mm, .*give spacing_mm=\(...\) or affine=..."
    ):
        oracle(**{"data.spacing_mm": "[2.0,2.0,3.0]"}).predict(image)
    oracle(**{"data.spacing_mm": "[2.0,2.0,3.0]"}).predict(image, spacing_mm=(2, 2, 2))
    oracle(**{"data.spacing_mm": "[2.0,2.0,3.0]"}).predict(image, affine=np.eye(4))
    oracle().predict(image)  # without a spacing nothing depends on it


def test_sizes_that_cannot_be_are_refused_in_python_too() -> None:
    image = np.ones((3, 8, 8, 8), np.float32)
    with pytest.raises(
        ValueError, match=r"voxels are 0\.0001 x 1 x 1 mm, and from 0\.001 to 100 mm are allowed"
    ):
        oracle().predict(image, spacing_mm=(0.0001, 1, 1))
    with pytest.raises(ValueError, match="give a regular 4 x 4 matrix"):
        oracle().predict(image, spacing_mm=(0.0, 1, 1))


def test_a_spike_is_a_warning_in_python() -> None:
    image = np.random.default_rng(0).uniform(1, 2, (3, 12, 12, 12)).astype(np.float32)
    image[1, 3, 4, 5] = 1e6
    with pytest.warns(UserWarning, match="channel TC has 1 voxel more than 50 times"):
        oracle(**{"data.normalization": "zscore"}).predict(image)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_outputs_that_are_no_numbers_are_an_error_that_names_the_image(value: float) -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.clone()
            y[:, 0, 2, 2, 2] = value
            return y

    image = np.random.default_rng(0).uniform(0, 1, (3, 9, 9, 9)).astype(np.float32)
    predictor = Predictor(oracle().preset, [Broken()])
    with pytest.raises(DataError, match="image: the network's output is NaN or infinite"):
        predictor.predict(image)

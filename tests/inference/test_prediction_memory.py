"""The estimate of memory, and cohorts with images that cannot be."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from factorizer.data.cases import Case, Source
from factorizer.inference.memory import BASE, check_memory, estimate_bytes
from factorizer.inference.predict import predict_cases
from factorizer.inference.predictor import Predictor
from factorizer.preset_files import change_preset, load_preset
from testkit.writing import write_nifti

PRESET = change_preset(
    load_preset("hippocampus"), ["data.patch_size=[8,8,8]", "model.window=4", "model.widths=[8,16]"]
)
CHANNEL = PRESET.data.channels[0]
ESTIMATE = {"batch_size": 1, "keep_probabilities": True}
DIM = 40


class Copy(nn.Module):
    """As many outputs as regions, from the only channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x.repeat(1, PRESET.out_channels, 1, 1, 1)


def case_of(file: Path) -> Case:
    return Case(file.name.partition(".")[0], {CHANNEL: Source(file)})


def write_scan(file: Path, size: float = 1.0) -> Path:
    image = np.random.default_rng(0).uniform(1, 2, (12, 12, 12)).astype(np.float32)
    return write_nifti(file, image, np.diag((size, size, size, 1.0)))


def write_dims(file: Path, *dims: int) -> Path:
    content = bytearray(write_scan(file).read_bytes())
    struct.pack_into(f"<{len(dims) + 1}h", content, DIM, len(dims), *dims)
    file.write_bytes(content)
    return file


def hostile(folder: Path) -> list[Path]:
    files = [
        write_dims(folder / f"zero{axis}.nii", *(0 if i == axis else 12 for i in range(3)))
        for axis in range(3)
    ]
    files += [
        write_dims(folder / "negative.nii", 12, -12, 12),
        write_dims(folder / "flat.nii", 12, 12),
        write_dims(folder / "many.nii", 12, 12, 12, 32767),
        write_dims(folder / "huge.nii", 32767, 32767, 32767),
        write_scan(folder / "metres.nii", 1000.0),
        write_scan(folder / "thick.nii", 30.0),
        write_scan(folder / "fine.nii", 0.001),
    ]
    (folder / "text.nii.gz").write_text("text")
    (folder / "empty.nii").write_bytes(b"")
    return [
        *files,
        folder / "text.nii.gz",
        folder / "empty.nii",
        folder / "missing.nii",
        folder / "text.png",
    ]


def test_an_estimate_is_made_for_any_header(tmp_path: Path) -> None:
    least = BASE
    for file in hostile(tmp_path):
        assert estimate_bytes(PRESET, case_of(file), **ESTIMATE) == least, file.name
    assert estimate_bytes(PRESET, case_of(write_scan(tmp_path / "good.nii")), **ESTIMATE) > least


def test_images_that_cannot_be_fail_by_name_and_the_others_are_predicted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    bad = hostile(tmp_path / "in")
    good = [write_scan(tmp_path / "in" / f"good{i}.nii.gz") for i in range(2)]
    files = [good[0], *bad, good[1]]
    results = list(
        predict_cases(
            Predictor(PRESET, [Copy()]), [case_of(file) for file in files], tmp_path / "out"
        )
    )
    assert [result.case for result in results if result.file] == ["good0", "good1"]
    for file, result in zip(bad, results[1:-1], strict=True):
        (problem,) = result.problems
        assert file.name in str(problem) or problem.case == case_of(file).name
        assert "it failed" not in str(problem), problem


def test_a_network_that_gives_no_numbers_fails_that_case(tmp_path: Path) -> None:
    class Overflowing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Copy()(x / (x.amax() < 3))  # a spike remains above after the z-score

    image = np.random.default_rng(0).uniform(1, 2, (12, 12, 12)).astype(np.float32)
    image[5, 5, 5] = 1000
    files = [
        write_nifti(tmp_path / "spike.nii.gz", image, np.eye(4)),
        write_scan(tmp_path / "good.nii.gz"),
    ]
    predictor = Predictor(PRESET, [Overflowing()])
    first, second = predict_cases(predictor, [case_of(file) for file in files], tmp_path / "out")
    assert first.file is None
    assert [str(problem) for problem in first.problems] == [
        "spike: the network's output is NaN or infinite; look at the image's intensities, and at "
        "the model's weights"
    ]
    assert "channel" in str(first.warnings[0])
    assert second.file is not None


def test_memory_is_compared_with_what_is_free(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("factorizer.data.capacity.usable_bytes", lambda: 1e8)
    with pytest.raises(
        ValueError, match=r"good: its prediction takes about .* GiB, and 0\.1 GiB are free"
    ):
        check_memory(PRESET, case_of(write_scan(tmp_path / "good.nii")), **ESTIMATE)

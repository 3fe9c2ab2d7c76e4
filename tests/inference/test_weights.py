"""Weights from files: changed bytes, and values that are no weights, are refused in one line that
names the file."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from safetensors.torch import save

from factorizer import NMF
from factorizer.config.networks import network_of
from factorizer.errors import ModelError
from factorizer.files import FileError
from factorizer.inference.load import load, load_what_fits
from factorizer.preset_files import change_preset, load_preset, to_yaml
from factorizer.runs.find import trained_on
from factorizer.runs.fold import Fold
from factorizer.runs.weights import read_weights
from factorizer.runs.zoo import sha256_of, write_model
from factorizer.training.checkpoints import read_checkpoint
from testkit.telling import Listener

WEIGHTS, CHECKSUM = "weights.safetensors", "weights.sha256"

CHANGES = ["model.widths=[8,16,16]", "model.window=4", "data.patch_size=[16,16,16]"]
PRESET = change_preset(load_preset("isles22"), CHANGES)


def write_fold(folder: Path, **changes: Any) -> Path:
    """A fold with weights as they are drawn; `changes` are other contents of its checkpoint."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(PRESET))
    state = {f"network.{name}": value for name, value in network_of(PRESET).state_dict().items()}
    write_checkpoint(folder, {"state_dict": state, "global_step": 1} | changes)
    return folder


def write_checkpoint(folder: Path, content: Any) -> None:
    torch.save(content, folder / "checkpoints" / "last.ckpt")


@pytest.fixture
def fold(tmp_path: Path) -> Path:
    return write_fold(tmp_path / "run" / "fold0")


@pytest.fixture
def safe(fold: Path, tmp_path: Path) -> Path:
    """The same in the form of the zoo."""
    write_model(Fold(fold), read_weights(Fold(fold)), tmp_path / "safe")
    return tmp_path / "safe"


def rewrite(folder: Path, content: bytes) -> None:
    """Other weights, with the checksum that belongs to them."""
    (folder / WEIGHTS).write_bytes(content)
    (folder / CHECKSUM).write_text(f"{sha256_of(folder / WEIGHTS)}  {WEIGHTS}\n")


def test_a_changed_byte_of_a_checkpoint_is_noticed(fold: Path) -> None:
    file = fold / "checkpoints" / "last.ckpt"
    whole, expected = file.read_bytes(), read_weights(Fold(fold))
    with ZipFile(file) as archive:
        starts = [part.header_offset for part in archive.infolist() if part.file_size > 1]
    for start in starts[:: len(starts) // 30]:
        changed = bytearray(whole)
        changed[start + 128] ^= (
            1  # behind the header of the part, in its content or in the padding before it
        )
        file.write_bytes(changed)
        try:
            weights = read_weights(Fold(fold))
        except ModelError:
            assert read_checkpoint(file) is None  # training resumes from the one before
        else:
            assert all(torch.equal(weights[name], value) for name, value in expected.items())
    changed = bytearray(whole)
    changed[whole.index(expected["stem.weight"].numpy().tobytes())] ^= 1
    file.write_bytes(changed)
    with pytest.raises(
        ModelError,
        match=r"last.ckpt cannot be read \(its part .* has changed since it was written\)",
    ):
        load(fold)


def test_a_changed_byte_of_shipped_weights_is_noticed(safe: Path) -> None:
    whole = (safe / WEIGHTS).read_bytes()
    load(safe, device="cpu")
    (safe / WEIGHTS).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(
        ModelError, match=r"does not match its checksum in weights.sha256; copy the folder again"
    ):
        load(safe)
    (safe / CHECKSUM).unlink()
    with pytest.raises(
        ModelError, match=r"safe has no weights.sha256, the checksum of its weights"
    ):
        load(safe)
    for text in ("", "x" * 2000):
        (safe / CHECKSUM).write_text(text)
        with pytest.raises(ValueError, match=r"weights.sha256"):
            load(safe)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(fold: Path, safe: Path, value: float) -> None:
    weights = read_weights(Fold(fold))
    weights["stem.weight"][0, 0, 0, 0, :2] = value
    write_checkpoint(fold, {"state_dict": weights, "global_step": 1})
    message = "stem.weight has 2 of 432 values that are NaN or infinite"
    with pytest.raises(ModelError, match=message):
        load(fold)
    rewrite(safe, save({name: value.contiguous() for name, value in weights.items()}))
    with pytest.raises(ModelError, match=message):
        load(safe)


def without_one(state: dict[str, Any]) -> Any:
    return {name: value for name, value in state.items() if name != "network.stem.weight"}


def with_one(value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda state: {**state, "network.stem.weight": value}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: None, "holds no weights by name"),
        (lambda state: list(state.values()), "holds no weights by name"),
        (lambda state: {1: torch.ones(1)}, "holds no weights by name"),
        (lambda state: {}, "stem.weight is missing|is missing and"),
        (without_one, r"\(stem.weight is missing\)"),
        (lambda state: {**state, "network.other": torch.ones(1)}, r"\(the network has no other\)"),
        (with_one("a"), "stem.weight is of the type str, not a tensor"),
        (with_one([1.0]), "stem.weight is of the type list, not a tensor"),
        (with_one(torch.ones(2)), r"stem.weight is \(2,\), not \(8, 2, 3, 3, 3\)"),
        (
            with_one(torch.ones(8, 2, 3, 3, 3, dtype=torch.int64)),
            "stem.weight is torch.int64, not torch.float32",
        ),
        (
            with_one(torch.ones(8, 2, 3, 3, 3, dtype=torch.complex64)),
            "stem.weight is torch.complex64",
        ),
        (with_one(torch.ones(4, 4).to_sparse()), "stem.weight is torch.float32 .torch.sparse_coo"),
        (with_one(torch.ones(1).expand(10**12)), "for which the file has too few numbers"),
    ],
)
def test_checkpoints_of_wrong_types(
    tmp_path: Path, change: Callable[[Any], Any], message: str
) -> None:
    state = {f"network.{name}": value for name, value in network_of(PRESET).state_dict().items()}
    folder = write_fold(tmp_path / "fold0", state_dict=change(state))
    with pytest.raises(ModelError, match=message) as caught:
        load(folder)
    assert "fold0" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_in_the_place_of_a_checkpoint(fold: Path) -> None:
    file = fold / "checkpoints" / "last.ckpt"
    with ZipFile(file) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    with pytest.raises(ModelError, match=r"it is compressed, and checkpoints are not"):
        load(fold)
    for content in ([1, 2], "text"):
        write_checkpoint(fold, content)
        with pytest.raises(ModelError, match=r"holds no weights by name"):
            load(fold)
    for content in (b"", b"PK\x05\x06" + bytes(18), b"\x80\x02." * 9):
        file.write_bytes(content)
        with pytest.raises(ModelError, match=r"last.ckpt cannot be read"):
            load(fold)


def header(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234567",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        header("{"),
        header("[1]"),
        header('{"a": 1}'),
        header('{"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}') + bytes(4),
        header('{"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}}') + bytes(4),
        header('{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}') + bytes(4),
        header('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'),
        header("[" * 20_000),
    ],
)
def test_damaged_safetensors(safe: Path, content: bytes) -> None:
    rewrite(safe, content)
    with pytest.raises(ModelError, match=r"safe/weights.safetensors cannot be read \(") as caught:
        load(safe)
    assert "\n" not in str(caught.value)


def test_safetensors_of_another_network(safe: Path) -> None:
    weights = read_weights(Fold(safe))
    rewrite(safe, save({**weights, "stem.weight": weights["stem.weight"].to(torch.int16)}))
    with pytest.raises(ModelError, match=r"stem.weight is torch.int16, not torch.float32"):
        load(safe)
    rewrite(safe, save({"a": torch.ones(1)}))
    with pytest.raises(ModelError, match=r"the weights of .*safe do not fit its config.yaml"):
        load(safe)


@pytest.mark.parametrize("saved_with", [True, False])
def test_weights_saved_with_or_without_deep_supervision_predict_the_same(
    tmp_path: Path, saved_with: bool
) -> None:
    folder = write_fold(tmp_path / "fold0")
    expected = load(folder, device="cpu").networks[0]
    if saved_with:
        preset = change_preset(PRESET, ["model.deep_supervision=false"])
        (folder / "config.yaml").write_text(to_yaml(preset))
    else:
        state = read_weights(Fold(folder))
        kept = {name: value for name, value in state.items() if not name.startswith("heads.1")}
        assert len(kept) < len(state)
        write_checkpoint(folder, {"state_dict": kept, "global_step": 1})
    said: list[str] = []
    network = load(folder, device="cpu", progress=Listener(said)).networks[0]
    image = torch.randn(1, 2, 16, 16, 16)
    with torch.no_grad():
        assert torch.equal(network(image), expected(image))
    assert len(said) == 1
    assert f"saved {'with' if saved_with else 'without'} deep supervision" in said[0]


def test_the_head_of_the_full_resolution_cannot_be_missing(fold: Path) -> None:
    kept = {
        name: value for name, value in read_weights(Fold(fold)).items() if name != "heads.0.bias"
    }
    write_checkpoint(fold, {"state_dict": kept, "global_step": 1})
    with pytest.raises(ModelError, match=r"heads.0.bias is missing"):
        load(fold)


def test_what_fits_has_the_same_kind_of_numbers(fold: Path) -> None:
    weights = read_weights(Fold(fold))
    weights["stem.weight"] = weights["stem.weight"].to(torch.int64)
    loaded, drawn = load_what_fits(network_of(PRESET), weights)
    assert drawn == ["stem.weight"]
    assert len(loaded) == len(weights) - 1


def test_a_network_that_cannot_be_built(fold: Path) -> None:
    text = (fold / "config.yaml").read_text()
    (fold / "config.yaml").write_text(text.replace("extra: {}", "extra: {mlp_ratios: a}"))
    with pytest.raises(
        ModelError,
        match=r"fold0/config.yaml describes a network that cannot be built: .*mlp_ratios",
    ):
        load(fold)


SOME = {"num_iters": 1}


@pytest.mark.parametrize(
    ("speeds", "message"),
    [
        ([], "holds no speeds by name"),
        ({"fast": 3}, "holds no list of layers for fast"),
        ({"fast": [1, 2, 3, 4, 5]}, "holds no list of layers for fast"),
        ({"fast": [SOME]}, "sets 1 NMF layers, the network has 5"),
        (
            {"fast": [{"solver": "mu"}, *[SOME] * 4]},
            "sets 'solver' of a layer; it can set num_iters, rank and bypass",
        ),
        ({"fast": [{"forward": 1}, *[SOME] * 4]}, "sets 'forward' of a layer"),
        (
            {"fast": [{"num_iters": -1}, *[SOME] * 4]},
            "sets num_iters of a layer to -1; give 1 to 5",
        ),
        (
            {"fast": [{"num_iters": 10**9}, *[SOME] * 4]},
            "sets num_iters of a layer to 1000000000; give 1 to 5",
        ),
        ({"fast": [{"num_iters": 2.0}, *[SOME] * 4]}, "sets num_iters of a layer to 2.0"),
        ({"fast": [{"num_iters": True}, *[SOME] * 4]}, "sets num_iters of a layer to True"),
        ({"fast": [{"rank": "a"}, *[SOME] * 4]}, "sets rank of a layer to 'a'; give 1 to 1"),
        (
            {"fast": [{"bypass": "yes"}, *[SOME] * 4]},
            "sets bypass of a layer to 'yes'; give False to True",
        ),
    ],
)
def test_speeds_that_cannot_be(fold: Path, speeds: Any, message: str) -> None:
    (fold / "speeds.json").write_text(json.dumps(speeds))
    with pytest.raises(ModelError, match=message) as caught:
        load(fold, speed="fast", device="cpu")
    assert "fold0/speeds.json" in str(caught.value)


def test_speeds_that_can_be(fold: Path) -> None:
    (fold / "speeds.json").write_text(
        json.dumps({"fast": [SOME, {"bypass": True}, {}, {"rank": 1}, SOME]})
    )
    layers = [
        m
        for m in load(fold, speed="fast", device="cpu").networks[0].modules()
        if isinstance(m, NMF)
    ]
    assert [layer.num_iters for layer in layers] == [1, 5, 5, 5, 1]
    (fold / "speeds.json").write_text("{")
    with pytest.raises(FileError, match=r"speeds.json: it is not JSON"):
        load(fold, speed="fast")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.json", "{"),
        ("run.json", '"text"'),
        ("run.json", "[1]"),
        ("run.json", '[{"init": 7}]'),
        ("run.json", "[" * 100_000),
        ("cases.json", "[[]]"),
        ("cases.json", "7"),
        ("trained_on.json", '{"a": 1}'),
        ("trained_on.json", "[1]"),
        ("../folds.json", "[1]"),
        ("../folds.json", '{"folds": 3}'),
        ("../folds.json", "\xff"),
    ],
)
def test_what_a_run_says_of_its_cases_must_be_readable(fold: Path, name: str, text: str) -> None:
    (fold.parent / "folds.json").write_text('{"folds": {"0": ["a"], "1": ["b"]}}')
    (fold / "cases.json").write_text('{"a": "1", "b": "2"}')
    assert trained_on([Fold(fold)]) == {"b"}
    (fold / name).write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=Path(name).name) as caught:
        trained_on([Fold(fold)])
    assert "\n" not in str(caught.value)


def test_runs_that_began_with_each_other(tmp_path: Path) -> None:
    for name, other in (("one", "other"), ("other", "one")):
        folder = write_fold(tmp_path / name / "fold0")
        (folder / "run.json").write_text(json.dumps([{"init": str(tmp_path / other / "fold0")}]))
        (folder / "trained_on.json").write_text(json.dumps([name]))
    assert trained_on([Fold(tmp_path / "one" / "fold0")]) == {"one", "other"}

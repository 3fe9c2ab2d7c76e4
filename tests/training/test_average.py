"""The running average of weights: what it is, that it is the model, and that it survives a stop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor, nn

from factorizer.config.networks import network_of
from factorizer.inference.load import load
from factorizer.preset_files import change_preset
from factorizer.runs.fold import Fold
from factorizer.runs.weights import read_weights
from factorizer.training.module import EARLY_STEPS, update_average
from testkit.runs import PRESET, At, assert_same, crash, run, weights

AVERAGED = change_preset(PRESET, ["training.average_weights=0.5", "model.dropout=0"])


class Weights(Callback):
    """The last weights after each step."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Tensor]] = []

    def on_train_batch_end(self, trainer, module, *_: object) -> None:
        state = module.network.state_dict()
        self.seen.append({name: value.clone() for name, value in state.items()})


def test_an_average_keeps_its_share_and_copies_whole_numbers() -> None:
    old, new = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    new.weight.data.fill_(3)
    new.num_batches_tracked.fill_(7)
    update_average(old, new, 0.75)
    assert old.weight.item() == pytest.approx(0.75 * 1 + 0.25 * 3)
    assert old.num_batches_tracked == 7


@pytest.mark.slow
def test_the_average_of_all_steps_is_the_model(strokes: Path, tmp_path: Path) -> None:
    watch = Weights()
    folder = run(strokes, tmp_path / "run", AVERAGED, callbacks=[watch]).folder
    plain = run(
        strokes, tmp_path / "plain", change_preset(AVERAGED, ["training.average_weights=0"])
    )
    last = weights(plain.folder)
    for name, value in watch.seen[-1].items():  # averaging does not change the training
        assert torch.equal(value, last[f"network.{name}"])
    name = "stem.weight"
    expected = None
    for step, seen in enumerate(watch.seen, start=1):
        share = min(0.5, step / (step + EARLY_STEPS))
        before = network_of(AVERAGED).state_dict()[name] if expected is None else expected
        expected = share * before + (1 - share) * seen[name]
    found = read_weights(Fold(folder))
    torch.testing.assert_close(found[name], expected)
    assert not torch.allclose(found[name], watch.seen[-1][name])
    torch.testing.assert_close(load(folder).network.state_dict()[name], expected)


@pytest.mark.slow
def test_a_run_with_averaged_weights_goes_on_bit_for_bit(strokes: Path, tmp_path: Path) -> None:
    whole = run(strokes, tmp_path / "whole", AVERAGED).folder
    with pytest.raises(RuntimeError, match="power cut"):
        run(strokes, tmp_path / "run", AVERAGED, callbacks=[At(3, crash)])
    assert_same(whole, run(strokes, tmp_path / "run", AVERAGED, resume=True).folder)

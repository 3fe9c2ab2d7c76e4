"""Settings of NMF layers."""

from __future__ import annotations

import pytest
import torch

from factorizer.inspection.settings import applied, matrix_sizes, paper_settings, settable_layers
from factorizer.nn.blocks import WrappedNMF
from testkit.small import build_small


def test_the_papers_settings() -> None:
    settings = paper_settings(9, 8, [8] * 8 + [4], iterations=20)
    studies = {
        study: [s for s in settings if s.study == study]
        for study in dict.fromkeys(s.study for s in settings)
    }
    assert {study: len(own) for study, own in studies.items()} == {
        "first layers kept": 10,
        "layer removed": 9,
        "iterations": 20,
        "rank (HALS)": 8,
        "rank (MU)": 8,
    }
    none, *_, every = studies["first layers kept"]
    assert all(layer == {"bypass": True} for layer in none.layers)
    assert all(layer == {} for layer in every.layers)
    fifth = studies["layer removed"][4]
    assert [index for index, layer in enumerate(fifth.layers) if layer] == [4]
    assert studies["rank (MU)"][7].layers[-1] == {"rank": 4, "solver": "mu"}
    assert studies["rank (MU)"][7].note == "capped in layers 9"


def test_a_setting_is_undone() -> None:
    network = build_small("swin-factorizer").eval()
    x = torch.randn(1, 2, 16, 16, 16)
    with torch.no_grad():
        before = network(x)
        with applied(
            network, [{"bypass": True}, {"num_iters": 1}, {}, {"rank": 2}, {"solver": "mu"}]
        ):
            assert [layer.bypass for layer in settable_layers(network)] == [
                True,
                False,
                False,
                False,
                False,
            ]
            assert not torch.equal(network(x), before)
        assert torch.equal(network(x), before)
    with pytest.raises(ValueError, match="has no NMF layer"):
        settable_layers(build_small("nnunet"))


def test_ranks_are_limited_by_the_matrices() -> None:
    network = build_small("swin-factorizer", window=1).eval()
    assert matrix_sizes(network, 2, (16, 16, 16)) == [1] * 5
    assert matrix_sizes(build_small("swin-factorizer").eval(), 2, (16, 16, 16)) == [8] * 5


@pytest.mark.parametrize(("solver", "times"), [("hals", 2), ("joint", 1)])
def test_a_bypassed_layer_takes_every_voxel_once_and_factorizes_nothing(
    solver: str, times: int
) -> None:
    """What it saves in time stands in docs/results: two grids of windows, and the factorization."""
    network = build_small("swin-factorizer", solver=solver).eval()
    wrapped = next(m for m in network.modules() if isinstance(m, WrappedNMF))
    voxels = []
    wrapped.in_proj.register_forward_hook(
        lambda module, inputs, output: voxels.append(inputs[0][..., 0].numel())
    )
    x = torch.randn(1, 2, 16, 16, 16)
    with torch.no_grad():
        network(x)
        assert sum(voxels) == times * 16**3
        voxels.clear()
        wrapped.nmf.bypass, wrapped.nmf.seed = (
            True,
            None,
        )  # there are no first factors: it would fail if it factorized
        network(x)
    assert sum(voxels) == 16**3

"""The cost table is the paper's."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from factorizer.config import build_options
from factorizer.models.registry import build_model
from factorizer.nn.blocks import nmf_layers
from factorizer.nn.nmf import NMF, SOLVERS
from factorizer.preset_files import load_preset
from factorizer.profiling.count import Cost, build_without_storage, count_cost, nmf_macs
from factorizer.profiling.table import count_rows, paper_figures

# millions, to the digit that the corrected tables of the paper have
PARAMETERS = {
    "brats": {
        "nnunet": "28.7049",
        "res-unet": "28.8790",
        "performer": "6.7277",
        "transbts": "32.9876",
        "unetr": "111.4725",
        "swin-unetr": "62.1919",
        "nnformer": "149.3959",
        "global-factorizer": "5.855241",
        "local-factorizer": "5.855241",
        "swin-factorizer": "5.855241",
    },
    "isles22": {
        "nnunet": "28.7027",
        "res-unet": "28.8768",
        "performer": "8.2440",
        "transbts": "31.0206",
        "unetr": "104.8351",
        "swin-unetr": "62.1884",
        "nnformer": "149.2036",
        "global-factorizer": "7.371523",
        "local-factorizer": "7.371523",
        "swin-factorizer": "7.371523",
    },
}
# within 0.3 %; the paper's figure cannot be reproduced
NEAR = {("brats", "nnunet"), ("brats", "performer")}


@pytest.mark.slow
@pytest.mark.parametrize("preset", PARAMETERS)
@pytest.mark.parametrize("name", PARAMETERS["brats"])
def test_parameters_and_flops_are_the_papers(preset: str, name: str) -> None:
    (row,) = count_rows(load_preset(preset), preset, [name])
    expected = PARAMETERS[preset][name]
    assert f"{row.params / 1e6:.{len(expected.partition('.')[2])}f}" == expected
    printed_params, printed_flops = paper_figures(preset)[name]
    assert round(row.params / 1e6, 1) == printed_params == row.paper_params_m
    assert row.paper_gflops == printed_flops
    if (preset, name) in NEAR:
        assert abs(row.gflops / printed_flops - 1) < 0.003
    else:
        assert round(row.gflops, 1) == printed_flops


def count(name: str, **options: object) -> Cost:
    options = {"in_channels": 2, "out_channels": 1, "spatial_size": (32, 32, 32)} | options
    model = build_without_storage(lambda: build_model(name, **options))
    assert {p.device.type for p in model.parameters()} == {"meta"}
    return count_cost(model, (options["in_channels"], *options["spatial_size"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nnunet", "performer", "swin-factorizer"])
def test_a_changed_width_moves_both_figures(name: str) -> None:
    one, other = count(name, widths=(16, 32, 64)), count(name, widths=(16, 32, 72))
    assert other.params > one.params
    assert other.flops > one.flops


def test_the_count_is_that_of_the_layers() -> None:
    """A network small enough to count by hand: one level above the bridge, no mixer, no MLP."""
    options = {"mixer": "none", "mlp_ratio": 0, "position_embedding": False, "widths": (8, 16)}
    cost = count("swin-factorizer", **options)
    fine, coarse = 32**3, 16**3
    stem, down, up = fine * 2 * 8 * 27, coarse * 8 * 16 * 8, coarse * 16 * 8 * 8
    adapter, head = fine * 16 * 8, fine * 8
    assert cost.macs == stem + down + up + adapter + head
    assert cost.norm_ops == 0


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rank", [1, 3])
def test_nmf_is_billed_as_the_products_of_its_algorithm(solver: str, rank: int) -> None:
    rows, columns, iterations = 8, 50, 3
    f, g = torch.rand(rows, rank), torch.rand(columns, rank)
    x, update = torch.rand(rows, columns), SOLVERS[solver]
    with FlopCounterMode(display=False) as counter:
        for _ in range(iterations):
            f = update(x, f, g)
            g = update(x.mT, g, f)
        f @ g.mT
    products = counter.get_total_flops() // 2
    if solver == "hals":  # subtracts the other columns one by one, not as a product
        products += iterations * (rows + columns) * rank * (rank - 1)
    assert nmf_macs(NMF(rank, iterations, solver), rows, columns) == products


@pytest.mark.slow
def test_settings_changed_after_training_are_counted() -> None:
    def flops(**settings: object) -> int:
        options = build_options(load_preset("isles22"), "swin-factorizer")
        model = build_without_storage(lambda: build_model("swin-factorizer", **options))
        for layer in nmf_layers(model):
            for name, value in settings.items():
                setattr(layer, name, value)
        return count_cost(model, (2, 64, 64, 64)).flops

    assert flops(bypass=True) < flops(num_iters=1) < flops() < flops(rank=2)


@pytest.mark.slow
def test_both_grids_of_windows_are_billed_and_the_projections_once() -> None:
    one, both = count("local-factorizer", window=4), count("swin-factorizer", window=4)
    without = count("local-factorizer", window=4, mixer="none")
    assert one.norm_ops == both.norm_ops
    assert both.macs - one.macs < 0.3 * (one.macs - without.macs)

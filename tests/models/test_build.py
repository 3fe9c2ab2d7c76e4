"""A network that is built from a seed."""

from __future__ import annotations

import torch

from factorizer.models.build import build_network
from testkit.small import U_SHAPE

OPTIONS = {"in_channels": 2, "out_channels": 1, **U_SHAPE}


def test_the_seed_alone_determines_the_weights() -> None:
    torch.manual_seed(7)
    first = build_network("nnunet", OPTIONS, seed=3).state_dict()
    again = build_network("nnunet", OPTIONS, seed=3).state_dict()
    other = build_network("nnunet", OPTIONS, seed=4).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["stem.weight"], other["stem.weight"])

"""The options of each system as types: editors complete them and type checkers find wrong ones.

They repeat the signatures of the builders; a test compares both. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict


class UNetOptions(TypedDict, total=False):
    """The options of every system with the U-shape of Fig. 1."""

    widths: Sequence[int]
    depths: Sequence[int] | None
    strides: int | Sequence[int | Sequence[int]]
    deep_supervision: bool


class NNUNetOptions(UNetOptions, total=False):
    groups: int


class PerformerOptions(UNetOptions, total=False):
    head_dim: int
    num_features: int | None
    mlp_ratio: float
    dropout: float
    position_embedding: bool
    seed: int


class GlobalFactorizerOptions(UNetOptions, total=False):
    head_dim: int
    rank: int
    num_iters: int
    solver: str
    tolerance: float
    mixer: Literal["nmf", "none"]
    mlp_ratio: float
    dropout: float
    position_embedding: bool
    seed: int


class FactorizerOptions(GlobalFactorizerOptions, total=False):
    """The options of the Factorizers that cut a map into windows."""

    window: int | Sequence[int] | None


class ConvFactorizerOptions(UNetOptions, total=False):
    head_dim: int
    window: int | Sequence[int] | None
    rank: int
    num_iters: int
    solver: str
    tolerance: float
    mixer: Literal["nmf", "none"]
    groups: int
    dropout: float
    seed: int


class TransBTSOptions(TypedDict, total=False):
    width: int
    embed_dim: int
    num_heads: int
    num_layers: int
    hidden: int
    dropout_rate: float
    stem_dropout_rate: float


class UNETROptions(TypedDict, total=False):
    feature_size: int
    hidden_size: int
    mlp_dim: int
    num_heads: int
    dropout_rate: float


class SwinUNETROptions(TypedDict, total=False):
    feature_size: int
    stage_depths: Sequence[int]
    num_heads: Sequence[int]
    window_size: int
    dropout_rate: float
    drop_path_rate: float


class NNFormerOptions(TypedDict, total=False):
    embed_dim: int
    stage_depths: Sequence[int]
    num_heads: Sequence[int]
    window_size: int
    drop_path_rate: float
    deep_supervision: bool

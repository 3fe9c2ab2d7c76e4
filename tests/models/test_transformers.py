"""The attention of TransBTS and nnFormer against MONAI's, which was written by others."""

from __future__ import annotations

import pytest
import torch
from monai.networks.blocks.transformerblock import TransformerBlock
from monai.networks.nets.swin_unetr import SwinTransformerBlock, compute_mask

from factorizer.models.nnformer import Block, WindowAttention, build_nnformer, spread_rates
from factorizer.models.transbts import TransformerLayer, build_transbts


def test_a_transbts_layer_is_a_vision_transformer_layer() -> None:
    ours = TransformerLayer(32, num_heads=4, hidden=64, dropout=0.0).double()
    theirs = TransformerBlock(32, 64, 4).double()
    names = {
        "attention.0.qkv": "attn.qkv",
        "attention.0.out_proj": "attn.out_proj",
        "feed_forward.0": "mlp.linear1",
        "feed_forward.3": "mlp.linear2",
    }
    state = {}
    for key, value in ours.state_dict().items():
        module, _, parameter = key.rpartition(".")
        state[f"{names.get(module, module)}.{parameter}"] = value
    theirs.load_state_dict(state, strict=False)
    x = torch.randn(2, 27, 32, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("shift", "size"), [(0, (8, 8, 8)), (2, (8, 8, 8)), (0, (12, 8, 4)), (0, (6, 8, 10)), (2, (6, 8, 10))]
)  # the last size needs padding
def test_an_nnformer_block_is_a_swin_block(shift: int, size: tuple[int, int, int]) -> None:
    ours = Block(24, 3, window=4, shift=shift, drop_path=0.0).double()
    theirs = SwinTransformerBlock(24, 3, (4, 4, 4), (shift,) * 3, mlp_ratio=4.0, qkv_bias=True).double()
    names = {
        "attention.proj": "attn.qkv",
        "attention.out_proj": "attn.proj",
        "mlp.0": "mlp.linear1",
        "mlp.2": "mlp.linear2",
    }
    torch.nn.init.normal_(ours.attention.bias_table)
    state = {"attn.relative_position_index": theirs.attn.relative_position_index}
    for key, value in ours.state_dict().items():
        module, _, parameter = key.rpartition(".")
        name = f"{names.get(module, module)}.{parameter}"
        state["attn.relative_position_bias_table" if "bias_table" in name else name] = value
    theirs.load_state_dict(state)
    x = torch.randn(2, *size, 24, dtype=torch.float64)
    padded = [-(-n // 4) * 4 for n in size]
    mask = compute_mask(padded, (4, 4, 4), (shift,) * 3, x.device)
    torch.testing.assert_close(ours(x), theirs(x, mask), rtol=0, atol=1e-12)


def test_skip_attention_takes_keys_and_values_from_the_skip() -> None:
    """One window: the same as plain attention with unprojected queries."""
    layer = WindowAttention(8, 2, window=2, shift=0, own_queries=True).double()
    torch.nn.init.zeros_(layer.bias_table)
    up, skip = torch.randn(2, 1, 2, 2, 2, 8, dtype=torch.float64)
    k, v = layer.proj(skip).flatten(1, 3).chunk(2, -1)
    heads = []
    for part in (slice(0, 4), slice(4, 8)):
        weights = (up.flatten(1, 3)[..., part] @ k[..., part].mT / 2).softmax(-1)
        heads.append(weights @ v[..., part])
    expected = layer.out_proj(torch.cat(heads, -1)).view_as(up)
    torch.testing.assert_close(layer(skip, queries=up), expected, rtol=0, atol=1e-12)


def test_every_relative_offset_has_its_own_bias() -> None:
    layer = WindowAttention(4, 1, window=3, shift=0, own_queries=False)
    layer.bias_table.data = torch.arange(125.0)[:, None]
    assert len(layer.scores((3, 3, 3), torch.zeros(1, 3, 3, 3, 4)).unique()) == 125


def test_drop_path_rises_evenly_over_the_blocks() -> None:
    rates = spread_rates(0.2, (2, 2, 2, 2))
    assert [round(r, 4) for level in rates for r in level] == [0, 0.0286, 0.0571, 0.0857, 0.1143, 0.1429, 0.1714, 0.2]
    model = build_nnformer(in_channels=1, out_channels=1, spatial_size=(32, 32, 32), embed_dim=24)
    assert [round(b.drop_path.drop_prob, 2) for level in model.decoder for b in level] == [
        0,
        0.04,
        0.08,
        0.12,
        0.16,
        0.2,
    ]


def test_transbts_dropout_follows_train_and_eval() -> None:
    model = build_transbts(in_channels=1, out_channels=1, spatial_size=(16,) * 3, width=8, embed_dim=16, hidden=16)
    x = torch.randn(2, 1, 16, 16, 16)
    with torch.no_grad():
        assert not torch.equal(model.train()(x), model(x))
        assert torch.equal(model.eval()(x), model(x))


def test_transbts_position_table_starts_at_zero_and_matters() -> None:
    model = build_transbts(in_channels=1, out_channels=1, spatial_size=(16,) * 3, width=8, embed_dim=16, hidden=16)
    assert not model.position.any()
    x = torch.randn(1, 1, 16, 16, 16)
    with torch.no_grad():
        before = model.eval()(x)
        model.position.normal_()
        assert not torch.equal(before, model(x))

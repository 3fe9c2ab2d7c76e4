"""The attention of TransBTS and nnFormer against MONAI's, which was written by others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from monai.networks.blocks.transformerblock import TransformerBlock
from monai.networks.nets.swin_unetr import SwinTransformerBlock, compute_mask
from torch import Tensor

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
    ("shift", "size"),
    [(0, (8, 8, 8)), (2, (8, 8, 8)), (0, (12, 8, 4)), (0, (6, 8, 10)), (2, (6, 8, 10))],
)  # the last size needs padding
def test_an_nnformer_block_is_a_swin_block(shift: int, size: tuple[int, int, int]) -> None:
    ours = Block(24, 3, window=4, shift=shift, drop_path=0.0).double()
    theirs = SwinTransformerBlock(
        24, 3, (4, 4, 4), (shift,) * 3, mlp_ratio=4.0, qkv_bias=True
    ).double()
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
    expected = [[0, 0.0286], [0.0571, 0.0857], [0.1143, 0.1429], [0.1714, 0.2]]
    for level, wanted in zip(rates, expected, strict=True):
        assert level == pytest.approx(wanted, abs=1e-4)
    model = build_nnformer(in_channels=1, out_channels=1, spatial_size=(32, 32, 32), embed_dim=24)
    expected = [[0, 0.04], [0.08, 0.12], [0.16, 0.2]]
    for stage, wanted in zip(model.decoder, expected, strict=True):
        assert [block.drop_path.drop_prob for block in stage] == pytest.approx(wanted, abs=1e-6)


def test_transbts_dropout_follows_train_and_eval() -> None:
    model = build_transbts(
        in_channels=1, out_channels=1, spatial_size=(16,) * 3, width=8, embed_dim=16, hidden=16
    )
    x = torch.randn(2, 1, 16, 16, 16)
    with torch.no_grad():
        assert not torch.equal(model.train()(x), model(x))
        assert torch.equal(model.eval()(x), model(x))


def test_transbts_position_table_starts_at_zero_and_matters() -> None:
    model = build_transbts(
        in_channels=1, out_channels=1, spatial_size=(16,) * 3, width=8, embed_dim=16, hidden=16
    )
    assert not model.position.any()
    x = torch.randn(1, 1, 16, 16, 16)
    with torch.no_grad():
        before = model.eval()(x)
        model.position.normal_()
        assert not torch.equal(before, model(x))


def conv(x: Tensor, state: dict[str, Tensor], name: str, **options: int) -> Tensor:
    return F.conv3d(x, state[f"{name}.weight"], state[f"{name}.bias"], **options)


def test_transbts_is_wired_as_published() -> None:
    """The whole network again as plain functions, from the description of the published one."""
    model = build_transbts(
        in_channels=2,
        out_channels=1,
        spatial_size=(16,) * 3,
        width=8,
        embed_dim=16,
        num_heads=2,
        num_layers=1,
        hidden=8,
    )
    model = model.double().eval()
    state = {
        name: torch.randn_like(value) * 0.3 if value.ndim else value
        for name, value in model.state_dict().items()
    }
    state |= {
        name: value.abs() + 0.5 for name, value in state.items() if name.endswith("running_var")
    }
    model.load_state_dict(state)

    def encoder_block(x: Tensor, name: str) -> Tensor:
        y = x
        for norm, weights in ((0, 2), (3, 5)):
            y = F.group_norm(
                y, 8, state[f"{name}.layers.{norm}.weight"], state[f"{name}.layers.{norm}.bias"]
            )
            y = conv(y.relu(), state, f"{name}.layers.{weights}", padding=1)
        return x + y

    def batch_norm(x: Tensor, name: str) -> Tensor:
        parts = (
            state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x, *parts)

    def decoder_block(x: Tensor, name: str, residual: bool = True) -> Tensor:
        y = x
        for weights, norm in ((0, 1), (3, 4)):
            y = batch_norm(
                conv(y, state, f"{name}.layers.{weights}", padding=1), f"{name}.layers.{norm}"
            ).relu()
        return x + y if residual else y

    image = torch.randn(1, 2, 16, 16, 16, dtype=torch.float64)
    x = encoder_block(conv(image, state, "stem.0", padding=1), "encoder.0.0")
    skips = []
    for level, depth in enumerate((2, 2, 4)):
        skips.append(x)
        x = conv(x, state, f"down.{level}", stride=2, padding=1)
        for block in range(depth):
            x = encoder_block(x, f"encoder.{level + 1}.{block}")
    x = conv(batch_norm(x, "embed.0").relu(), state, "embed.2", padding=1)
    tokens = x.flatten(2).mT + state["position"]
    tokens = model.transformer(tokens)  # its layers are compared with MONAI's above
    x = tokens.mT.reshape(1, 16, 2, 2, 2)
    x = decoder_block(decoder_block(x, "reduce.0", residual=False), "reduce.1")
    for level, skip in enumerate(reversed(skips)):
        x = conv(x, state, f"up.{level}.reduce")
        x = F.conv_transpose3d(
            x, state[f"up.{level}.up.weight"], state[f"up.{level}.up.bias"], stride=2
        )
        x = decoder_block(
            conv(torch.cat((skip, x), 1), state, f"up.{level}.join"), f"decoder.{level}"
        )
    torch.testing.assert_close(model(image), conv(x, state, "head"), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_nnformer_is_wired_as_published() -> None:
    """The whole network again as plain functions around the attention, which is tested above."""
    model = build_nnformer(
        in_channels=2, out_channels=1, spatial_size=(64,) * 3, embed_dim=24, drop_path_rate=0.0
    )
    model = model.double()
    state = {name: torch.randn_like(value) * 0.2 for name, value in model.state_dict().items()}
    model.load_state_dict(state)

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"])

    def convolve(x: Tensor, name: str, stride: int = 1) -> Tensor:
        return conv(x.movedim(-1, 1), state, f"{name}.conv", stride=stride, padding=1).movedim(
            1, -1
        )

    def transposed(x: Tensor, name: str, stride: int) -> Tensor:
        weight, bias = state[f"{name}.conv.weight"], state[f"{name}.conv.bias"]
        return F.conv_transpose3d(x.movedim(-1, 1), weight, bias, stride=stride).movedim(1, -1)

    def mlp(x: Tensor, name: str) -> Tensor:
        h = F.gelu(F.linear(x, state[f"{name}.mlp.0.weight"], state[f"{name}.mlp.0.bias"]))
        return x + F.linear(h, state[f"{name}.mlp.2.weight"], state[f"{name}.mlp.2.bias"])

    def block(x: Tensor, name: str, skip: Tensor | None = None) -> Tensor:
        module = model.get_submodule(name)
        if skip is None:
            y = x + module.attention(norm(x, f"{name}.norm1"))
        else:
            y = (
                x
                + skip
                + module.attention(norm(skip, f"{name}.norm1"), queries=norm(x, f"{name}.norm1"))
            )
        h = norm(y, f"{name}.norm2")
        return y + (mlp(h, name) - h)

    image = torch.randn(1, 2, 64, 64, 64, dtype=torch.float64)
    x = image.movedim(1, -1)
    for first, stride in ((0, 2), (3, 1), (6, 2)):
        x = norm(F.gelu(convolve(x, f"embed.{first}", stride)), f"embed.{first + 2}")
    x = norm(convolve(x, "embed.9"), "embed.10")
    skips = []
    for level in range(4):
        if level:
            x = convolve(norm(F.gelu(x), f"down.{level - 1}.1"), f"down.{level - 1}.2", 2)
        for index in range(2):
            x = block(x, f"encoder.{level}.{index}")
        skips.append(norm(x, f"skip_norms.{level}"))
    x, outputs = skips[3], []
    for step, level in enumerate((2, 1, 0)):
        x = transposed(norm(x, f"up.{step}.0"), f"up.{step}.1", 2)
        x = block(x, f"decoder.{step}.0", skips[level])
        x = block(x, f"decoder.{step}.1")
        outputs.append(transposed(x, f"heads.{level}", 4).movedim(-1, 1))
    for ours, expected in zip(model.train()(image), reversed(outputs), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_nnformer_shifts_every_second_encoder_block_and_all_but_the_first_of_a_decoder() -> None:
    model = build_nnformer(
        in_channels=1,
        out_channels=1,
        spatial_size=(128,) * 3,
        embed_dim=24,
        stage_depths=(3, 2, 2, 2),
    )
    assert [block.attention.shift for block in model.encoder[0]] == [0, 2, 0]
    assert [block.attention.shift for block in model.decoder[-1]] == [0, 2, 2]
    # here the map is not larger than the window
    assert [block.attention.shift for block in model.encoder[3]] == [0, 0]

"""PyTorch's contestants; the only file here that needs PyTorch."""

import warnings

import torch
from _contest import (
    DIM,
    END,
    FEED_FORWARD,
    HEADS,
    START,
    VOCABULARY,
    Size,
    Work,
)
from torch import nn
from torch.nn import functional

FAST_PATH = "aten::_transformer_encoder_layer_fwd"
NESTED = "aten::_nested_tensor_from_mask"


def prepare(name: str, size: Size) -> Work:
    return _decoding(size) if size.steps else _encoding(size)


def _encoding(size: Size) -> Work:
    """Its encoder on its fast path, with nested tensors if there is padding.

    Raises:
        RuntimeError: This version of PyTorch takes another path.
    """
    stack = _encoder(size, "relu")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((size.batch, size.seq, DIM), generator=generator)
    x = x.to(getattr(torch, size.dtype))
    padding = None
    if size.lengths is not None:
        lengths = torch.tensor(size.lengths)
        padding = torch.arange(size.seq) >= lengths[:, None]

    def run() -> None:
        with torch.inference_mode():
            stack(x, src_key_padding_mask=padding)

    _require(run, {FAST_PATH} if padding is None else {FAST_PATH, NESTED})
    return run


def _decoding(size: Size) -> Work:
    """A greedy loop over its decoder's layers, of which it has none itself.

    What these layers made of earlier tokens and of the source is kept. It has
    no masks, of which there is no need here.
    """
    torch.manual_seed(0)
    encoder = _encoder(size, "gelu")
    layers = [
        nn.TransformerDecoderLayer(
            DIM, HEADS, FEED_FORWARD, activation="gelu", batch_first=True
        ).eval()
        for _ in range(size.layers)
    ]
    embedding = nn.Embedding(VOCABULARY, DIM)
    encodings = torch.randn(size.seq + size.steps, DIM)
    source = torch.randint(END + 1, VOCABULARY, (size.batch, size.seq))

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(size.batch, -1, HEADS, DIM // HEADS).transpose(1, 2)

    def attend(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        attended = functional.scaled_dot_product_attention(query, key, value)
        return attended.transpose(1, 2).reshape(size.batch, -1, DIM)

    def embed(ids: torch.Tensor, first: int) -> torch.Tensor:
        last = first + ids.shape[1]
        return embedding(ids) * DIM**0.5 + encodings[first:last]

    def write() -> torch.Tensor:
        memory = encoder(embed(source, 0))
        cache = []
        for layer in layers:
            across = layer.multihead_attn
            key, value = functional.linear(
                memory, across.in_proj_weight[DIM:], across.in_proj_bias[DIM:]
            ).chunk(2, -1)
            keys, values = torch.zeros(
                2, size.batch, HEADS, size.steps, DIM // HEADS
            )
            cache.append((keys, values, heads(key), heads(value)))
        ids = [torch.full((size.batch, 1), START)]
        for step in range(size.steps):
            x = embed(ids[-1], step)
            for layer, kept in zip(layers, cache, strict=True):
                keys, values, memory_keys, memory_values = kept
                own, across = layer.self_attn, layer.multihead_attn
                query, key, value = functional.linear(
                    x, own.in_proj_weight, own.in_proj_bias
                ).chunk(3, -1)
                keys[:, :, step : step + 1] = heads(key)
                values[:, :, step : step + 1] = heads(value)
                attended = attend(
                    heads(query),
                    keys[:, :, : step + 1],
                    values[:, :, : step + 1],
                )
                x = layer.norm1(x + own.out_proj(attended))
                query = functional.linear(
                    x, across.in_proj_weight[:DIM], across.in_proj_bias[:DIM]
                )
                attended = attend(heads(query), memory_keys, memory_values)
                x = layer.norm2(x + across.out_proj(attended))
                hidden = functional.gelu(layer.linear1(x))
                x = layer.norm3(x + layer.linear2(hidden))
            logits = functional.linear(x, embedding.weight)
            ids.append(logits.argmax(-1))
        return torch.cat(ids, 1)

    def run() -> None:
        with torch.inference_mode():
            write()

    return run


def _encoder(size: Size, activation: str) -> nn.Module:
    # It says that nested tensors are a prototype, once a process.
    warnings.filterwarnings("ignore", category=UserWarning)
    layer = nn.TransformerEncoderLayer(
        DIM,
        HEADS,
        FEED_FORWARD,
        activation=activation,
        batch_first=True,
        dtype=getattr(torch, size.dtype),
    )
    return nn.TransformerEncoder(
        layer, size.layers, enable_nested_tensor=size.lengths is not None
    ).eval()


def _require(run: Work, operators: set[str]) -> None:
    with torch.profiler.profile() as profile:
        run()
    missing = operators - {event.name for event in profile.events()}
    if missing:
        raise RuntimeError(f"PyTorch {torch.__version__} skipped {missing}")

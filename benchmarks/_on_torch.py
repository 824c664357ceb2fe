"""Our encoder on PyTorch, and that of torch.nn."""

from typing import Any

import torch
from _contest import DIM, FEED_FORWARD, HEADS, SEQ, US, Work
from torch import nn

import keras_posenc as kp

SHAPE = 8, SEQ, DIM


def forward(layers: int) -> dict[str, Work]:
    x = _numbers(0)

    def work(encoder: Any) -> Work:
        def run() -> None:
            with torch.inference_mode():
                encoder(x)

        return run

    return {
        name: work(encoder.eval())
        for name, encoder in _encoders(layers).items()
    }


def training(layers: int) -> dict[str, Work]:
    x, goal = _numbers(0), _numbers(1)

    def work(encoder: Any) -> Work:
        adam = torch.optim.Adam(encoder.parameters(), 1e-4)

        def train() -> None:
            adam.zero_grad()
            nn.functional.mse_loss(encoder(x), goal).backward()
            adam.step()

        return train

    return {
        name: work(encoder.train())
        for name, encoder in _encoders(layers).items()
    }


def _encoders(layers: int) -> dict[str, Any]:
    ours = kp.TransformerEncoder(
        layers, num_heads=HEADS, intermediate_dim=FEED_FORWARD, dropout=0.0
    )
    ours.build(SHAPE)
    block = nn.TransformerEncoderLayer(
        DIM, HEADS, FEED_FORWARD, dropout=0.0, batch_first=True
    )
    theirs = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
    encoders = {US: ours, "torch.nn": theirs}
    sizes = {
        sum(each.numel() for each in encoder.parameters())
        for encoder in encoders.values()
    }
    assert len(sizes) == 1, sizes
    return encoders


def _numbers(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(SHAPE, generator=generator)

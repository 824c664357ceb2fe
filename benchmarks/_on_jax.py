"""Our encoder on JAX, and one of flax.nnx: pure functions, compiled alike."""

from collections.abc import Callable
from typing import Any

import jax
import optax
from _contest import DIM, FEED_FORWARD, HEADS, SEQ, US, Work
from flax import nnx

import keras_posenc as kp

SHAPE = 8, SEQ, DIM
Call = Callable[[Any, Any], Any]


def forward(layers: int) -> dict[str, Work]:
    x = _numbers(0)

    def work(call: Call, weights: Any) -> Work:
        run = jax.jit(call)
        return lambda: jax.block_until_ready(run(weights, x))

    return {name: work(*each) for name, each in _encoders(layers).items()}


def training(layers: int) -> dict[str, Work]:
    x, goal = _numbers(0), _numbers(1)

    def work(call: Call, weights: Any) -> Work:
        adam = optax.adam(1e-4)

        def loss(weights: Any) -> Any:
            return ((call(weights, x) - goal) ** 2).mean()

        def step(weights: Any, moments: Any) -> Any:
            gradients = jax.grad(loss)(weights)
            updates, moments = adam.update(gradients, moments)
            return optax.apply_updates(weights, updates), moments

        run = jax.jit(step, donate_argnums=(0, 1))
        state = [weights, adam.init(weights)]

        def train() -> None:
            state[:] = jax.block_until_ready(run(*state))

        return train

    return {name: work(*each) for name, each in _encoders(layers).items()}


def _encoders(layers: int) -> dict[str, tuple[Call, Any]]:
    encoders = {US: _ours(layers), "flax.nnx": _theirs(layers)}
    sizes = {
        sum(each.size for each in jax.tree.leaves(weights))
        for _, weights in encoders.values()
    }
    assert len(sizes) == 1, sizes
    return encoders


def _ours(layers: int) -> tuple[Call, Any]:
    encoder = kp.TransformerEncoder(
        layers, num_heads=HEADS, intermediate_dim=FEED_FORWARD, dropout=0.0
    )
    encoder.build(SHAPE)
    weights = [each.value for each in encoder.trainable_variables]
    return lambda weights, x: encoder.stateless_call(weights, [], x)[0], weights


def _theirs(layers: int) -> tuple[Call, Any]:
    rngs = nnx.Rngs(0)
    encoder = nnx.Sequential(*(_Block(rngs) for _ in range(layers)))
    graph, weights, others = nnx.split(encoder, nnx.Param, ...)
    return lambda weights, x: nnx.merge(graph, weights, others)(x), weights


class _Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(
            HEADS, DIM, decode=False, rngs=rngs
        )
        self.attention_norm = nnx.LayerNorm(DIM, rngs=rngs)
        self.up = nnx.Linear(DIM, FEED_FORWARD, rngs=rngs)
        self.down = nnx.Linear(FEED_FORWARD, DIM, rngs=rngs)
        self.feed_forward_norm = nnx.LayerNorm(DIM, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.attention_norm(x + self.attention(x))
        return self.feed_forward_norm(x + self.down(nnx.relu(self.up(x))))


def _numbers(seed: int) -> Any:
    return jax.random.normal(jax.random.key(seed), SHAPE)

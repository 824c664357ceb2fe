"""Measures errors of rotations far out: `python benchmarks/rotary_accuracy.py`.

The largest error of a sine or cosine, over the attention factor, at the 64
positions before 2**20 and 2**24, compared with mpmath: of each scaling of
`RotaryEmbedding`, and of the sinusoidal encoding; of keras-hub's layers
(`pip install 'keras-posenc[bench]'`) and, with `--transformers PYTHON`, a
Python that has torch and transformers, of Hugging Face's. About a minute.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

DIM, BASE = 64, 10_000.0
FARTHEST = (2**20, 2**24)
DTYPES = ("float32", "bfloat16")
LENGTH = {"factor": 8.0, "original_max_position_embeddings": 8192}
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 8.0},
    "dynamic": LENGTH,
    "yarn": LENGTH,
    "longrope": {
        **LENGTH,
        "short_factor": [1 + pair / 32 for pair in range(DIM // 2)],
        "long_factor": [1 + pair for pair in range(DIM // 2)],
    },
    "llama3": {**LENGTH, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "proportional": {"partial_rotary_factor": 0.25},
    "clipped": {"clipped_pairs": 10},
}
ENCODING = "the sinusoidal encoding"

# Run by the other Python, whose environment has no Keras.
THEIRS = """
import json, sys, torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
kinds, dim, base, farthest, dtypes = json.load(sys.stdin)
found = {}
for kind, parameters in kinds.items():
    for far in farthest:
        for dtype in dtypes:
            config = LlamaConfig(
                hidden_size=dim, num_attention_heads=1, head_dim=dim,
                max_position_embeddings=parameters.get(
                    "original_max_position_embeddings", 8192),
                rope_parameters={
                    "rope_type": kind, "rope_theta": base, **parameters})
            x = torch.zeros(1, dtype=getattr(torch, dtype))
            rope = LlamaRotaryEmbedding(config)
            cosine, sine = rope(x, torch.arange(far - 64, far)[None])
            half = [each[0, :, : dim // 2].float() / rope.attention_scaling
                    for each in (sine, cosine)]
            found[f"{kind} {far} {dtype}"] = torch.cat(half, -1).tolist()
print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--transformers", metavar="PYTHON")
    python = parser.parse_args().transformers
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    theirs: dict[str, Any] = {}
    if python:
        known = {kind: KINDS[kind] for kind in KINDS if kind != "clipped"}
        asked = [known, DIM, BASE, FARTHEST, DTYPES]
        run = subprocess.run(
            [python, "-c", THEIRS],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=True,
        )
        theirs = json.loads(run.stdout.splitlines()[-1])
    columns = [
        f"2^{far.bit_length() - 1}, {d}" for far in FARTHEST for d in DTYPES
    ]
    print(f"| kind | library | {' | '.join(columns)} |")
    print("|---" * (2 + len(columns)) + "|")
    for kind in [ENCODING, *KINDS]:
        for library, values in (
            ("keras_posenc", ours),
            ("keras-hub", keras_hubs),
            ("transformers", lambda *key: theirs.get(" ".join(map(str, key)))),
        ):
            cells = []
            for far in FARTHEST:
                exact = exactly(kind, far)
                for dtype in DTYPES:
                    got = values(kind, far, dtype)
                    if got is not None:
                        error = np.abs(np.asarray(got, "float64") - exact).max()
                        cells.append(f"{error:.1e}")
            if cells:
                print(
                    f"| {kind} | {library} | {' | '.join(cells)} |", flush=True
                )


def exactly(kind: str, far: int) -> np.ndarray:
    """Sines, then cosines, (64, DIM): the angles in 40 digits."""
    from tests.layers import rotary_rates

    kind = "default" if kind == ENCODING else kind
    rates = rotary_rates({"rope_type": kind, **KINDS[kind]}, DIM, BASE, far)
    with mpmath.workdps(40):
        exact = [mpmath.mpf(float(rate)) for rate in rates]
        if kind == "default":  # the others scale these, rounded to float64
            exact = [
                mpmath.mpf(BASE) ** (-mpmath.mpf(2 * j) / DIM)
                for j in range(DIM // 2)
            ]
        return np.array(
            [
                [
                    float(turn(place * rate))
                    for turn in (mpmath.sin, mpmath.cos)
                    for rate in exact
                ]
                for place in range(far - 64, far)
            ]
        )


def ours(kind: str, far: int, dtype: str) -> np.ndarray:
    import keras_posenc as kp

    if kind == ENCODING:
        layer = kp.PositionalEncoding(
            merge_mode=None, layout="halves", dtype=dtype
        )
        return _numpy(layer(np.zeros((1, 64, DIM)), start_index=far - 64))
    scaling = {"rope_type": kind, **KINDS[kind]}
    # At position 0 nothing turns: what is left is the attention factor.
    plain = kp.RotaryEmbedding(scaling=scaling)
    factor = _numpy(plain(_unit(1), start_index=0))[0, 0]
    layer = kp.RotaryEmbedding(scaling=scaling, dtype=dtype)
    return _turned(layer(_unit(), positions=np.arange(far - 64, far))) / factor


def keras_hubs(kind: str, far: int, dtype: str) -> np.ndarray | None:
    import keras_hub

    if kind == ENCODING:
        layer = keras_hub.layers.SinePositionEncoding(dtype=dtype)
        values = _numpy(layer(np.zeros((1, 64, DIM)), start_index=far - 64))
        return np.concatenate([values[:, ::2], values[:, 1::2]], axis=-1)
    if kind not in ("default", "linear"):
        return None  # its dynamic and yarn are other formulas
    layer = keras_hub.layers.RotaryEmbedding(
        BASE, KINDS[kind].get("factor", 1.0), dtype=dtype
    )
    return _turned(layer(_unit(), positions=np.arange(far - 64, far)))


def _unit(length: int = 64) -> np.ndarray:
    """Features that a rotation turns to its cosines, then its sines."""
    return np.tile(np.arange(DIM) < DIM // 2, (1, length, 1)).astype("float32")


def _turned(outputs: Any) -> np.ndarray:
    cosine, sine = np.split(_numpy(outputs), 2, axis=-1)
    return np.concatenate([sine, cosine], axis=-1)


def _numpy(x: Any) -> np.ndarray:
    from keras import ops

    return np.asarray(ops.convert_to_numpy(ops.cast(x, "float32")))[0]


if __name__ == "__main__":
    main()

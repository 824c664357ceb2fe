"""PyTorch's contestant; the only file here that needs PyTorch."""

import warnings

import torch
from _contest import DIM, FEED_FORWARD, HEADS, Size, Work
from torch import nn

FAST_PATH = "aten::_transformer_encoder_layer_fwd"
NESTED = "aten::_nested_tensor_from_mask"


def prepare(name: str, size: Size) -> Work:
    """Its encoder on its fast path, with nested tensors if there is padding.

    Raises:
        RuntimeError: This version of PyTorch takes another path.
    """
    # It says that nested tensors are a prototype, once a process.
    warnings.filterwarnings("ignore", category=UserWarning)
    dtype = getattr(torch, size.dtype)
    stack = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(
            DIM, HEADS, FEED_FORWARD, batch_first=True, dtype=dtype
        ),
        size.layers,
        enable_nested_tensor=size.lengths is not None,
    ).eval()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((size.batch, size.seq, DIM), generator=generator).to(dtype)
    padding = None
    if size.lengths is not None:
        lengths = torch.tensor(size.lengths)
        padding = torch.arange(size.seq) >= lengths[:, None]

    def run() -> None:
        with torch.inference_mode():
            stack(x, src_key_padding_mask=padding)

    _require(run, {FAST_PATH} if padding is None else {FAST_PATH, NESTED})
    return run


def _require(run: Work, operators: set[str]) -> None:
    with torch.profiler.profile() as profile:
        run()
    missing = operators - {event.name for event in profile.events()}
    if missing:
        raise RuntimeError(f"PyTorch {torch.__version__} skipped {missing}")

"""A warning where bfloat16 is slower than float32."""

import keras
import pytest

import keras_posenc as kp
from keras_posenc.transformer import _bfloat16

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """Lets Linux describe another processor, of a machine without a GPU."""
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(_bfloat16, "_PROCESSOR", path)
    monkeypatch.setattr(keras.distribution, "list_devices", lambda kind: [])
    _bfloat16.warn_of_slow_bfloat16.cache_clear()
    yield path
    _bfloat16.warn_of_slow_bfloat16.cache_clear()


def build(policy):
    kp.TransformerEncoderBlock(2, intermediate_dim=8, dtype=policy).build(
        (None, None, 4)
    )


def told(warnings):
    """What the warnings say of it, whatever others there are."""
    texts = [str(each.message) for each in warnings]
    return [text for text in texts if "bfloat16" in text]


def test_processor_without_bfloat16(processor, recwarn):
    processor.write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n")
    build("float32")
    assert told(recwarn) == []
    with pytest.warns(UserWarning, match="bfloat16 is slower than float32"):
        build("mixed_bfloat16")
    build("mixed_bfloat16")  # once is enough
    assert told(recwarn) == []


def test_processor_with_bfloat16(processor, recwarn):
    processor.write_text("flags\t\t: fpu avx2 avx512_bf16\n")
    build("mixed_bfloat16")
    assert told(recwarn) == []

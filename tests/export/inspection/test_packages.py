"""Messages for damaged LiteRT-LM packages, and packages given by mistake."""

import pytest
from litert_lm_builder.runtime.proto.embedding_metadata_pb2 import (
    EmbeddingMetadata,
)

import keras_posenc as kp
from keras_posenc.export.formats.litertlm_package import write_package
from keras_posenc_cli import main
from keras_posenc_worker.read_litertlm import sections_of

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def package(tmp_path):
    """Without models."""
    path = tmp_path / "m.litertlm"
    write_package(path, EmbeddingMetadata(max_input_length=24), {}, {})
    return path


def test_metadata_of_an_embedder_is_shown(package):
    assert "max tokens: 24" in str(kp.inspect_export(package))


def with_an_end_beyond(content, _):
    return content[:24] + (2**40).to_bytes(8, "little") + content[32:]


def with_other_metadata(content, metadata):
    begin, end = metadata["begin"], metadata["end"]
    return content[:begin] + b"\xff" * (end - begin) + content[end:]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x, _: x[:5], "neither a LiteRT file, an ONNX file nor a"),
        (lambda x, _: x[:60], "cut off after 60 bytes, or damaged: its header"),
        (lambda x, _: x[:-1], "bytes, or damaged: a section is from byte"),
        (with_an_end_beyond, "its header ends at byte 1,099,511"),
        (with_other_metadata, r"damaged \(DecodeError"),
    ],
)
def test_damaged_packages(package, spoil, message):
    content, (metadata, *_) = package.read_bytes(), sections_of(package)
    package.write_bytes(spoil(content, metadata))
    with pytest.raises(ValueError, match=message):
        kp.inspect_export(package)


def test_who_takes_no_packages(package, capfd):
    with pytest.raises(ValueError, match="Scoring takes no LiteRT-LM"):
        kp.Scorer(package)
    for command, words in (
        (["export", "litert", str(package), "--out", "x.tflite"], "must be a"),
        (["bench", str(package)], "must be a LiteRT file"),
    ):
        assert main(command) != 0
        assert words in capfd.readouterr().err

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


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (5, "neither a LiteRT file, an ONNX file nor a LiteRT-LM package"),
        (60, "cut off after 60 bytes, or damaged: its header ends"),
        (-1, "bytes, or damaged: a section is from byte"),
    ],
)
def test_where_a_package_is_cut_off(package, size, message):
    package.write_bytes(package.read_bytes()[:size])
    with pytest.raises(ValueError, match=message):
        kp.inspect_export(package)


def test_what_only_looks_like_a_package(package):
    content = bytearray(package.read_bytes())
    content[24:32] = (2**40).to_bytes(8, "little")
    package.write_bytes(content)
    with pytest.raises(ValueError, match="its header ends at byte 1,099,511"):
        kp.inspect_export(package)


def test_metadata_that_cannot_be_parsed(package):
    content = bytearray(package.read_bytes())
    metadata = sections_of(package)[0]
    size = metadata["end"] - metadata["begin"]
    content[metadata["begin"] : metadata["end"]] = b"\xff" * size
    package.write_bytes(content)
    with pytest.raises(ValueError, match="damaged \\(DecodeError"):
        kp.inspect_export(package)


def test_who_takes_no_packages(package, capfd):
    with pytest.raises(ValueError, match="Scoring takes no LiteRT-LM"):
        kp.Scorer(package)
    for command, words in (
        (["export", "litert", str(package), "--out", "x.tflite"], "must be a"),
        (["bench", str(package), "--signature", "a"], "must be names of"),
    ):
        assert main(command) != 0
        assert words in capfd.readouterr().err

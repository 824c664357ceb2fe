"""Messages for damaged LiteRT-LM packages, and packages given by mistake."""

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.formats.litertlm_package import (
    Section,
    read_packed_tokenizer,
    require_builder,
    tokenizer_section,
    write_package,
)
from keras_posenc_cli import main

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def package(tmp_path):
    """Of nothing but metadata."""
    message = require_builder().EmbeddingMetadata(max_input_length=24)
    path = tmp_path / "m.litertlm"
    content = message.SerializeToString()
    write_package(path, [Section("EmbeddingMetadataProto", content)])
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


def test_metadata_that_cannot_be_parsed(tmp_path):
    path = tmp_path / "m.litertlm"
    write_package(path, [Section("EmbeddingMetadataProto", b"\xff" * 9)])
    with pytest.raises(ValueError, match="damaged \\(DecodeError"):
        kp.inspect_export(path)


@pytest.mark.parametrize(
    "values", [[], *({"added_tokens": x} for x in ([{}], [{"id": "a"}], 7))]
)
def test_a_tokenizer_of_another_structure(tmp_path, values):
    path = tmp_path / "m.litertlm"
    write_package(path, [tokenizer_section(values)])
    (section,) = kp.inspect_export(path).sections
    with pytest.raises(kp.ExportVerificationError, match="is no tokenizer"):
        read_packed_tokenizer(path, section)


def test_who_takes_no_packages(package, capfd):
    with pytest.raises(ValueError, match="Scoring takes no LiteRT-LM"):
        kp.Scorer(package)
    for command, words in (
        (["generate", str(package), "a"], "generate takes no LiteRT-LM"),
        (["export", "litert", str(package), "--out", "x.tflite"], "must be a"),
        (["bench", str(package), "--signature", "a"], "must be names of"),
    ):
        assert main(command) != 0
        assert words in capfd.readouterr().err


@pytest.mark.parametrize("name", ["signatures", "max_length"])
def test_arguments_of_other_formats(package, make, name):
    model = make.embedder()
    given = {"signatures": {"a": model}, "max_length": 8}
    with pytest.raises(ValueError, match=f"`{name}` must be None for a Lite"):
        kp.verify_export(package, model, **{name: given[name]})
    with pytest.raises(ValueError, match="must be texts"):
        kp.verify_export(package, model, samples=np.ones((1, 4), "int32"))
    with pytest.raises(kp.ExportVerificationError, match="no package of a lan"):
        kp.verify_export(package, model)

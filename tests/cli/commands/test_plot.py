"""`keras-posenc plot`."""

import pytest

from keras_posenc_cli.commands.plot import OF_SCHEMES, PICTURES

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def cli(run, tmp_path, monkeypatch):
    """Runs a line of the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda line: run(*line.split())


def test_pictures_are_those_of_the_package():
    from keras_posenc import analysis

    names = {name for name in vars(analysis) if name.startswith("plot_")}
    names.remove("plot_quantization")  # of a report, which no file holds
    assert {f"plot_{picture}" for picture in PICTURES} == names


@pytest.fixture(scope="module")
def generators(tmp_path_factory):
    """Of texts, with beams, and of ids, without."""
    import keras_posenc as kp

    folder = tmp_path_factory.mktemp("generators")
    model = kp.Transformer(
        9, d_model=8, num_layers=2, num_heads=2, intermediate_dim=8
    )
    tokenizer = kp.CharacterTokenizer("ab한")
    kp.Generator(
        model,
        source_tokenizer=tokenizer,
        target_tokenizer=tokenizer,
        max_length=4,
        beams=2,
    ).save(folder / "texts.keras")
    ids = kp.Generator(model, max_length=4, start_id=2, end_ids=3)
    ids.save(folder / "ids.keras")
    model.save(folder / "model.keras")
    return folder


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "line",
    [
        "attention texts.keras --source ab --target 한 --layer 1 --head 0",
        pytest.param("attention ids.keras --source 5,6", marks=SLOW),
    ],
)
def test_pictures_of_a_model(cli, tmp_path, generators, line):
    picture, model, rest = line.split(" ", 2)
    result = cli(f"plot {picture} {generators / model} {rest} --out a.png")
    assert result.code == 0, result.err
    assert result.out == "Wrote a.png\n"
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("attention texts.keras --source a --layer 2", "from 0 to 1, or None"),
        ("attention model.keras --source a", "is a Transformer, not a Gener"),
        ("attention texts.keras", "attention needs MODEL.keras and --source"),
        ("attention texts.keras --source a --dim 4", "--dim is not for atten"),
        ("heatmap texts.keras", "MODEL.keras is not for heatmap"),
    ],
)
def test_bad_arguments_of_a_model(cli, tmp_path, generators, line, reason):
    picture, model, *rest = line.split()
    rest = " ".join(rest)
    result = cli(f"plot {picture} {generators / model} {rest} --out a.png")
    assert result.code == 2
    assert reason in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("picture", OF_SCHEMES)
def test_every_picture(cli, tmp_path, picture):
    scheme = "rotary" if picture == "bias" else "sinusoidal"
    result = cli(f"plot {picture} --scheme {scheme} --out picture.png")
    assert result.code == 0, result.err
    assert result.out == "Wrote picture.png\n"
    content = (tmp_path / "picture.png").read_bytes()
    assert content.startswith(b"\x89PNG")


def test_size_and_head_of_a_picture(cli, tmp_path):
    line = "plot bias --scheme alibi --length 9 --dim 4 --num-heads 2 --head 1"
    assert cli(f"{line} --out one.svg").code == 0
    assert "<svg" in (tmp_path / "one.svg").read_text()

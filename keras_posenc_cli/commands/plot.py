"""`keras-posenc plot`: pictures of positions and of generators."""

import argparse
import inspect
from collections.abc import Mapping
from typing import Any

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import (
    check_exists,
    check_out,
    load_generator,
    parse_ids,
)
from keras_posenc_cli.options import Commands, add_command, add_options
from keras_posenc_cli.process import EXIT_OK, UsageError

OF_SCHEMES = (
    "bias",
    "circle",
    "heatmap",
    "similarity",
    "wavelengths",
    "waves",
    "winding",
)
# Pictures of a generator, with their options besides model and source.
OF_MODELS = {"attention": ("target", "layer", "head")}
PICTURES = (*OF_SCHEMES, *OF_MODELS)
_OPTIONS = (
    *("scheme", "length", "dim", "num_heads", "head"),
    *("layer", "source", "target"),
)
_DEFAULT = "sinusoidal"


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "plot",
        run,
        summary="draw a positional encoding, or what a generator does",
        description="Draws a positional encoding, learned ones before training;"
        " or the attention of a Generator for one text. Needs "
        "matplotlib: pip install 'keras-posenc[plot]'.",
        usage="PICTURE [MODEL.keras] --out FILE [option ...]",
        example="keras-posenc plot attention dates.keras --source 3/7/24 "
        "--out x.png",
    )
    parser.add_argument(
        "picture",
        choices=PICTURES,
        metavar="PICTURE",
        help=f"of an encoding: {', '.join(OF_SCHEMES)}; of a model: "
        f"{', '.join(OF_MODELS)}",
    )
    parser.add_argument(
        "model",
        nargs="?",
        type=arguments.path,
        metavar="MODEL.keras",
        help="a saved Generator, for the pictures of a model",
    )
    add_options(
        parser,
        "--out",
        required=True,
        metavar="FILE",
        help="the picture: .png, .svg, .pdf",
    )
    parser.add_argument(
        "--scheme",
        metavar="NAME",
        help="one of those that `keras-posenc compare` lists (default: "
        f"{_DEFAULT})",
    )
    for name, metavar, kind, what in (
        ("length", "N", arguments.length, "how many positions"),
        ("dim", "N", arguments.length, "width of the encoding"),
        ("num-heads", "N", arguments.length, "how many heads"),
        ("head", "N", int, "which head"),
        ("layer", "N", int, "which layer; by default the mean, as for heads"),
        ("source", "TEXT", str, "input of the model"),
        ("target", "TEXT", str, "its output (default: what it generates)"),
    ):
        parser.add_argument(f"--{name}", type=kind, metavar=metavar, help=what)
    add_options(parser, "--import")


def run(options: argparse.Namespace) -> int:
    given = {
        name: value
        for name in _OPTIONS
        if (value := getattr(options, name)) is not None
    }
    check_out(options.out)
    check_exists(options.out.parent)
    draw = _of_model if options.picture in OF_MODELS else _of_scheme
    ax = draw(options, given)
    ax.figure.savefig(options.out, dpi=150)
    print(f"Wrote {options.out}")
    return EXIT_OK


def _of_scheme(options: argparse.Namespace, given: Mapping[str, Any]) -> Any:
    if options.model is not None:
        raise UsageError(f"MODEL.keras is not for {options.picture}")
    from keras_posenc.progress import progress

    with progress(True) as step:
        step(f"Drawing {options.out}")
        from keras_posenc import analysis

        draw = getattr(analysis, f"plot_{options.picture}")
        parameters = inspect.signature(draw).parameters
        sizes = dict(given)
        scheme = sizes.pop("scheme", _DEFAULT)
        _check_names(options, sizes, tuple(parameters))
        if options.picture == "wavelengths":
            if scheme != _DEFAULT:
                raise UsageError("wavelengths are those of the sinusoid")
            return draw(**sizes)
        length = sizes.get("length", parameters["length"].default)
        return draw(analysis.make_scheme(scheme, length), **sizes)


def _of_model(options: argparse.Namespace, given: Mapping[str, Any]) -> Any:
    _check_names(options, given, ("source", *OF_MODELS[options.picture]))
    if options.model is None or options.source is None:
        raise UsageError(
            f"plot {options.picture} needs MODEL.keras and --source"
        )
    model = load_generator(options.model, options.imports)
    from keras_posenc import analysis
    from keras_posenc.progress import progress

    source, target = options.source, options.target
    if model.source_tokenizer is None:
        source = parse_ids(source, "--source")
    if model.target_tokenizer is None and target is not None:
        target = parse_ids(target, "--target")
    with progress(True) as step:
        step(f"Drawing {options.out}")
        found = analysis.attention_map(model, source, target)
        return analysis.plot_attention(
            found, layer=options.layer, head=options.head
        )


def _check_names(
    options: argparse.Namespace,
    given: Mapping[str, Any],
    known: tuple[str, ...],
) -> None:
    for name in given:
        if name not in known:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is not for {options.picture}")
    if options.imports and options.picture not in OF_MODELS:
        raise UsageError(f"--import is not for {options.picture}")

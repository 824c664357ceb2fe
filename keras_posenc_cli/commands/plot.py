"""`keras-posenc plot`: a positional scheme as a picture."""

import argparse
import inspect
from typing import TYPE_CHECKING

from keras_posenc_cli import arguments
from keras_posenc_cli.process import EXIT_OK, UsageError

if TYPE_CHECKING:
    from keras_posenc_cli.arguments import Commands

PICTURES = (
    "bias",
    "circle",
    "heatmap",
    "similarity",
    "wavelengths",
    "waves",
    "winding",
)


def add(commands: "Commands") -> None:
    parser = arguments.add_command(
        commands,
        "plot",
        run,
        summary="draw a positional scheme",
        description="Draws a positional scheme; learned ones before "
        "training. Needs matplotlib: pip install 'keras-posenc[plot]'.",
        usage="PICTURE --out FILE [option ...]",
        example="keras-posenc plot heatmap --scheme time --out time.png",
    )
    parser.add_argument(
        "picture",
        choices=PICTURES,
        metavar="PICTURE",
        help=f"what to draw: {', '.join(PICTURES)}",
    )
    parser.add_argument(
        "--out",
        required=True,
        type=arguments.path,
        metavar="FILE",
        help="the picture: .png, .svg, .pdf",
    )
    parser.add_argument(
        "--scheme",
        default="sinusoidal",
        metavar="NAME",
        help="one of those that `keras-posenc compare` lists (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--length",
        type=arguments.length,
        metavar="N",
        help="how many positions",
    )
    parser.add_argument(
        "--dim",
        type=arguments.length,
        metavar="N",
        help="width of the encoding",
    )
    parser.add_argument(
        "--num-heads",
        type=arguments.length,
        metavar="N",
        help="how many heads",
    )
    parser.add_argument("--head", type=int, metavar="N", help="which of them")


def run(options: argparse.Namespace) -> int:
    given = {
        name: value
        for name in ("length", "dim", "num_heads", "head")
        if (value := getattr(options, name)) is not None
    }
    from keras_posenc.progress import progress

    with progress(True) as step:
        step(f"Drawing {options.out}")
        from keras_posenc import analysis

        draw = getattr(analysis, f"plot_{options.picture}")
        parameters = inspect.signature(draw).parameters
        for name in given:
            if name not in parameters:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} is not for {options.picture}")
        if options.picture == "wavelengths":
            if options.scheme != "sinusoidal":
                raise UsageError("wavelengths are those of the sinusoid")
            schemes = []
        else:
            length = given.get("length", parameters["length"].default)
            schemes = [analysis.make_scheme(options.scheme, length)]
        ax = draw(*schemes, **given)
        ax.figure.savefig(options.out, dpi=150)
    print(f"Wrote {options.out}")
    return EXIT_OK

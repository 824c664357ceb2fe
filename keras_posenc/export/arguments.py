"""Arguments that `verify` and the exports share, each described once.

Messages and `help` show a function's docstring with all of them.
"""

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

_SHARED = {
    "model": """
Any built Keras model. It is not changed. Its weights are those at
the call, so another thread may train it meanwhile. But call this
between two training steps, or from a callback: otherwise some weights
may be from before an update and some from after it.
""",
    "allow_operators": """
Names of operators to allow beyond those known to only
compute, of the format or of TensorFlow; see `operators.toml`.
""",
    "verify": "Whether to verify before publishing.",
    "samples": """
Further inputs to verify with: an array, a dict of arrays by input
name, a text, or a list of these. Required if the model takes integers
of more than 8 bits and has neither an `Embedding` nor a lookup that
limits them.
""",
    "max_length": """
The longest sequence to verify with. By default 512, or the
tokenizer's `max_length` or `sequence_length` if that is less, or the
longest that the model takes. Inputs with several dynamic axes besides
the batch (images, volumes) have this length along each of them, and
then along one of them, the others being half as long or so. Their
default is 64 for two axes, 16 for three, 8 for four, or the next
length that the model takes. They have up to 2**23 numbers: 512 by 512
pixels of 3 channels, but 35 by 35 by 35 cells of 64.
""",
    "tolerance": """
Largest difference allowed in a file that is not quantized:
relative to the model's number where that is above 1, else to the
largest number of that output (or 1, or 0.01). By default 1e-5, and 1e-2
at extreme floats. Integers and strings must be equal, except where the
model's own rounding gives another one too, as of two tokens that it
rates equal: the report counts these examples.
""",
    "limits": """
What a quantized file may lose, a dict of limits by name, such as
`{"sqnr": 20}`. Those left out have their defaults, and the report gives
each number next to its limit:

- `"sqnr"`: least signal to quantization noise ratio of an output, in
  dB: `10 * log10(sum((y - mean(y))**2) / sum((y - file)**2))`. The mean
  is over all examples, and outputs that vary by less than 0.3 of their
  size count as if they varied by that. By default 40 for float16, 20
  for int8-weights, 10 for int8, 6 for int8-static and 4 for int4.
- `"agreement"`: least share of examples with the model's class, for
  outputs that add up to 1; of integers, the share that is equal beyond
  those of a file that always gives the commonest one; 0.6 by default.
  It is not measured if the model gives one class for all examples.
- `"cosine"`: least cosine of a vector of any other output with the
  model's, 0.7 by default. Of vectors that the model rounds to bits,
  `"agreement"` is of the bits.
- `"kl"`: largest mean KL divergence of a `Generator`'s file from the
  model's probabilities, in nats per token, 0.1 by default. It is
  measured on texts that the model samples, after the `samples` if there
  are any, and on those that the file generates. So a generator is not
  compared token by token.
- `"perplexity"`: largest perplexity of a generator's file, as a
  multiple of the model's, on these texts and on the second halves of
  the `samples`; 1.1 by default.

These numbers are of the samples, if there are any, else of generated
inputs; for other inputs the outputs must be finite.
""",
    "verbose": "Whether to show progress.",
}


def shares_arguments(function: _Function) -> _Function:
    """Adds the shared arguments that a function has to its docstring."""
    doc = inspect.getdoc(function)
    if doc is None:  # python -OO
        return function
    before, args, after = re.split(r"(?<=\nArgs:\n)|(?=\n\nReturns:)", doc)
    described = dict(
        re.findall(r"^    (\w+): (.*?)(?=\n    \w|\Z)", args, re.M | re.S)
    )
    for name, text in _SHARED.items():
        text = textwrap.indent(text.strip(), 8 * " ").strip()
        described.setdefault(name, text)
    names = inspect.signature(function).parameters
    args = "\n".join(f"    {name}: {described[name]}" for name in names)
    function.__doc__ = before + args + after
    return function

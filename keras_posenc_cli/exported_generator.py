"""Runs an exported generator in a separate process."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportVerificationError, in_words
from keras_posenc.export.inspect import (
    Inspection,
    Tensor,
    inspect_safe,
    refuse_package,
)
from keras_posenc.export.signatures.lengths import LENGTHS
from keras_posenc.export.signatures.signature import DEFAULT
from keras_posenc.export.worker_client import (
    MEMORY,
    MIB,
    Limits,
    run_model,
)
from keras_posenc_worker.codec import to_bytes

BATCH = 32
NOISE = "noise"
_SECONDS = 600
# The meaning of each output. In ONNX no output has an input's name.
_OUTPUTS = {name: name for name in ("text", "ids", "score", "ended")}
_OUTPUTS["output_ids"] = "ids"


@dataclasses.dataclass(frozen=True)
class ExportedGenerator:
    """An exported generator that has been inspected, but not run.

    Attributes:
        inspection: The result of the inspection.
        signature: Name of the signature to run.
        takes: Name of its input of texts or ids.
        noise_length: How many numbers sample one row; None if it does not
            sample.
    """

    inspection: Inspection
    signature: str
    takes: str
    noise_length: int | None

    @property
    def takes_texts(self) -> bool:
        """Whether its input is strings instead of ids."""
        return self._input.dtype == "string"

    @property
    def _input(self) -> Tensor:
        signature = self.inspection.signatures[self.signature]
        return signature["inputs"][self.takes]

    def run(
        self,
        rows: Sequence[Any],
        names: Sequence[str],
        *,
        seed: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs it in a process with limits and without Keras.

        Args:
            rows: Strings, or lists of ids.
            names: Names of the rows in errors.
            seed: Seed of the noise that samples; None for a random one.

        Returns:
            Its outputs by name, a row for each; texts are Python strings.

        Raises:
            ValueError: A row is longer than the signature takes.
            RuntimeError: The file does not load, or cannot be run.
        """
        noise = None
        if self.noise_length is not None:
            noise = draw_noise(len(rows), self.noise_length, seed)
        size = self._batch or BATCH
        starts = range(0, len(rows), size)
        batches = [range(begin, len(rows))[:size] for begin in starts]
        cases = [self._case(rows, names, batch, noise) for batch in batches]
        found = self._outputs_of(cases, rows)
        for batch, answer in zip(batches, found, strict=True):
            if isinstance(answer, str):
                self._refuse(rows, names, batch, noise, answer)
        return {
            _OUTPUTS[name]: np.concatenate(
                [
                    answer[name][: len(batch)]
                    for batch, answer in zip(batches, found, strict=True)
                    if not isinstance(answer, str)
                ]
            )
            for name in self.inspection.signatures[self.signature]["outputs"]
            if name in _OUTPUTS
        }

    @property
    def _batch(self) -> int | None:
        shape = self._input.shape
        return shape[0] if shape else None

    def _case(
        self,
        rows: Sequence[Any],
        names: Sequence[str],
        batch: Sequence[int],
        noise: Any,
    ) -> tuple[str, dict[str, Any]]:
        """The request of some rows, with as many more as its batch must have.

        Raises:
            ValueError: A row is longer than the signature takes.
        """
        count = self._batch or len(batch)
        given: Any
        if self.takes_texts:
            given = np.full((count,), b"", object)
            given[: len(batch)] = [to_bytes(rows[index]) for index in batch]
        else:
            shape = self._input.shape or (None, None)
            length = shape[1]
            # At least one column: some runtimes cannot have none.
            longest = max(1, *(len(rows[index]) for index in batch))
            given = np.zeros((count, length or longest), self._input.dtype)
            for place, index in enumerate(batch):
                row = rows[index]
                if length is not None and len(row) > length:
                    raise ValueError(
                        f"{names[index]} is too long: it has {len(row)} ids, "
                        f"and signature '{self.signature}' of "
                        f"'{self.inspection.path}' takes {length}"
                    )
                given[place, : len(row)] = row
        inputs = {self.takes: given}
        if LENGTHS in self.inspection.signatures[self.signature]["inputs"]:
            lengths = np.zeros((count,), "int32")
            lengths[: len(batch)] = [len(rows[index]) for index in batch]
            inputs[LENGTHS] = lengths
        if noise is not None:
            some = np.zeros((count, noise.shape[1]), noise.dtype)
            some[: len(batch)] = noise[batch[0] : batch[-1] + 1]
            inputs[NOISE] = some
        return self.signature, inputs

    def _outputs_of(
        self,
        cases: Sequence[tuple[str, dict[str, Any]]],
        rows: Sequence[Any],
    ) -> list[dict[str, Any] | str]:
        """Returns the outputs for each case, or why there are none."""
        inspection = self.inspection
        limits = Limits(
            # The memory that its loop needs is unknown here.
            memory=MEMORY + 4 * inspection.size_bytes + 4096 * MIB,
            seconds=_SECONDS,
            file=1024 * MIB,
            timeout=_SECONDS,
        )
        try:
            response = run_model(
                inspection.kind, inspection.path, cases, limits, times=1
            )
        except ExportVerificationError as error:
            longest = max(map(len, rows))
            unit = "characters" if self.takes_texts else "ids"
            raise ExportVerificationError(
                f"{error}. The longest of {len(rows)} texts has {longest} "
                f"{unit}"
            ) from error
        return [
            in_words(answer["error"])
            if "error" in answer
            else {
                name: _decoded(value)
                for name, value in answer["outputs"].items()
            }
            for answer in response["cases"]
        ]

    def _refuse(
        self,
        rows: Sequence[Any],
        names: Sequence[str],
        batch: Sequence[int],
        noise: Any,
        reason: str,
    ) -> None:
        """Raises an error for the first row that the file cannot run."""
        who = f"{names[batch[0]]} to {names[batch[-1]]}"
        alone = [
            self._case(rows, names, range(index, index + 1), noise)
            for index in batch
        ]
        for index, answer in zip(
            batch, self._outputs_of(alone, rows), strict=True
        ):
            if isinstance(answer, str):
                who, reason = names[index], answer
                break
        if not self.takes_texts and "out of bounds" in reason:
            reason = (
                f"{reason.rstrip('.')}. An id is beyond its vocabulary: ids, "
                "or a tokenizer, of another model"
            )
        raise RuntimeError(
            f"'{self.inspection.path}' fails for {who}: {reason}"
        )


def read_generator(
    exported: str | Path,
    *,
    signature: str | None = None,
    allow_operators: Sequence[str] = (),
) -> ExportedGenerator:
    """Inspects an exported file, and finds the signature that generates.

    Args:
        exported: A `.tflite` or `.onnx` file, a SavedModel's folder, or the
            folder of its versions.
        signature: Name of a signature; by default `serving_default`, or the
            only one.
        allow_operators: As for `export_saved_model`.

    Raises:
        ValueError: There is no such signature, or it does not generate.
        ExportVerificationError: It cannot be read, or does more than compute.
    """
    refuse_package(exported, "keras-posenc generate")
    inspection = inspect_safe(Path(exported), allow_operators)
    known = inspection.signatures
    if signature is None:
        signature = next(iter(known)) if len(known) == 1 else DEFAULT
    if signature not in known:
        raise ValueError(
            f"'{inspection.path}' has no signature '{signature}'. Its "
            f"signatures: {', '.join(known) or 'none'}"
        )
    inputs, outputs = (known[signature][side] for side in ("inputs", "outputs"))
    takes = [
        name for name, tensor in inputs.items() if _is_texts_or_ids(tensor)
    ]
    drawn = inputs.get(NOISE)
    rest = inputs.keys() - {*takes, NOISE, LENGTHS}
    if (
        len(takes) != 1
        or rest
        or len((_OUTPUTS.keys() - {"ended"}) & outputs.keys()) != 2
        or "score" not in outputs
        or (drawn is not None and None in _shape(drawn)[1:])
    ):
        raise ValueError(
            f"Signature '{signature}' of '{inspection.path}' is not that of a "
            "kp.Generator, which takes 'text' or 'ids', and returns 'text' or "
            f"'ids' and 'score'. It takes {_listed(inputs)}, and returns "
            f"{_listed(outputs)}"
        )
    return ExportedGenerator(
        inspection,
        signature,
        takes[0],
        None if drawn is None else _shape(drawn)[1],
    )


def draw_noise(rows: int, length: int, seed: int | None) -> np.ndarray:
    """Returns numbers in [0, 1), `(rows, length)`, equal on all machines."""
    return np.random.default_rng(seed).random((rows, length), "float32")


def _is_texts_or_ids(tensor: Tensor) -> bool:
    rank = len(_shape(tensor))
    if tensor.dtype == "string":
        return rank == 1
    return tensor.dtype in ("int32", "int64") and rank == 2


def _shape(tensor: Tensor) -> tuple[int | None, ...]:
    return tensor.shape or ()


def _listed(tensors: dict[str, Tensor]) -> str:
    return ", ".join(f"{name}: {tensor}" for name, tensor in tensors.items())


def _decoded(array: Any) -> Any:
    """Returns arrays of bytes as arrays of strings; others unchanged."""
    if array.dtype != object:
        return array
    texts = [text.decode(errors="replace") for text in array.ravel()]
    return np.array(texts, object).reshape(array.shape)

"""Contestants of other libraries for language models, and what all read.

`prepare` reads the folder that the environment variable `LANGUAGE_MODEL`
names, and for llama.cpp the file that `GGUF` names.
"""

import atexit
import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _contest import THREADS, Size, Work

TRANSFORMERS = "transformers, PyTorch"
# With what each stores the weights in.
CTRANSLATE2 = {
    "CTranslate2, float32": "float32",
    "CTranslate2, int8": "int8",
}
LLAMA_CPP = {
    "llama.cpp, F32": "F32",
    "llama.cpp, Q8_0": "Q8_0",
    "llama.cpp, Q4_0": "Q4_0",
}
NAMES = TRANSFORMERS, *CTRANSLATE2, *LLAMA_CPP

LAST = 49000  # SmolLM2's special tokens are its first


def numbers(size: Size) -> Any:
    """Returns ids `(batch, seq)`, int32."""
    rng = np.random.default_rng(0)
    return rng.integers(100, LAST, (size.batch, size.seq), "int32")


def prepare(name: str, size: Size) -> Work:
    """Returns a greedy search, which writes as many tokens as are wanted."""
    make = _ctranslate2 if name in CTRANSLATE2 else _llama_cpp
    if name == TRANSFORMERS:
        return _transformers(size)
    return make(name, size)


def _transformers(size: Size) -> Work:
    import torch

    model = _transformers_model()
    ids = torch.from_numpy(numbers(size).astype("int64"))
    steps = max(size.steps, 1)
    return lambda: model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=steps,
        min_new_tokens=steps,
        do_sample=False,
        pad_token_id=0,
    )


@functools.cache
def _transformers_model() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(THREADS)
    return AutoModelForCausalLM.from_pretrained(
        os.environ["LANGUAGE_MODEL"], dtype=torch.float32
    ).eval()


def _ctranslate2(name: str, size: Size) -> Work:
    generator, tokens = _ctranslate2_generator(name)
    texts = [[tokens[each] for each in row] for row in numbers(size)]
    steps = max(size.steps, 1)
    return lambda: generator.generate_batch(
        texts,
        beam_size=1,
        min_length=steps,
        max_length=steps,
        include_prompt_in_result=False,
    )


@functools.cache
def _ctranslate2_generator(name: str) -> tuple[Any, list[str]]:
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    from transformers import AutoTokenizer

    source = os.environ["LANGUAGE_MODEL"]
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = str(Path(folder.name) / "model")
    TransformersConverter(source).convert(path, quantization=CTRANSLATE2[name])
    generator = ctranslate2.Generator(
        path, compute_type=CTRANSLATE2[name], intra_threads=THREADS
    )
    ids = AutoTokenizer.from_pretrained(source).get_vocab()
    return generator, sorted(ids, key=ids.__getitem__)


def _llama_cpp(name: str, size: Size) -> Work:
    model = _llama_cpp_model(name)
    ids = numbers(size)[0].tolist()

    def run() -> None:
        model.reset()
        model.eval(ids)
        for _ in range(max(size.steps, 1)):
            model.eval([model.sample(temp=0)])

    return run


@functools.cache
def _llama_cpp_model(name: str) -> Any:
    import llama_cpp

    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = str(Path(folder.name) / "model.gguf")
    _write_gguf(os.environ["GGUF"], path, LLAMA_CPP[name])
    return llama_cpp.Llama(
        path,
        n_ctx=512,
        n_threads=THREADS,
        n_threads_batch=THREADS,
        verbose=False,
    )


def _write_gguf(source: str, path: str, kind: str) -> None:
    """Writes the same model with all matrices of one kind."""
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for key, each in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kinds = each.types
        of_items = kinds[-1] if len(kinds) > 1 else None
        writer.add_key_value(key, each.contents(), kinds[0], of_items)
    wanted = gguf.GGMLQuantizationType[kind]
    for each in reader.tensors:
        values = gguf.dequantize(each.data, each.tensor_type)
        stored = wanted if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(
            each.name, gguf.quantize(values, stored), raw_dtype=stored
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

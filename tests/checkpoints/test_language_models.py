"""Folders of language models: what is read, kept and refused."""

import concurrent.futures
import json
import shutil

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.generation.stream import Reply
from tests.text.files import FIXTURES

FOLDER = FIXTURES / "language_model"
TEMPLATE = "{% for m in messages %}{{ m.role + ':' + m.content }}\n{% endfor %}"
HELLO = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def folder(tmp_path):
    copy = tmp_path / "folder"
    shutil.copytree(FOLDER, copy)
    return copy


def load(folder, **options):
    return kp.load_hugging_face(folder, from_ids=True, verbose=False, **options)


def write(folder, name="generation_config.json", **values):
    path = folder / name
    found = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(found | values))


def test_generation_config_is_the_default(folder):
    write(
        folder,
        eos_token_id=[3, 4],
        max_new_tokens=7,
        max_length=20,
        min_new_tokens=2,
        do_sample=True,
        temperature=0.7,
        min_p=0.1,
        repetition_penalty=1.2,
        suppress_tokens=[5],
        bad_words_ids=[[6]],
        length_penalty=0.5,
        typical_p=1.0,
        stop_strings=None,
        use_cache=True,
    )
    template = {"name": "default", "template": TEMPLATE}
    write(
        folder,
        "tokenizer_config.json",
        chat_template=[{"name": "tools", "template": "x"}, template],
        bos_token={"content": "<s>"},
        eos_token="</s>",
    )
    model = load(folder)
    assert model.end_ids == (3, 4)
    assert (model.start_id, model.max_length, model.min_length) == (1, 7, 2)
    assert (model.temperature, model.top_k, model.min_p) == (0.7, 50, 0.1)
    assert model.repetition_penalty == 1.2
    assert model.suppress_ids == (5, 6)
    # As in transformers, max_length has no effect beside max_new_tokens.
    assert model.max_positions == 32
    assert model.with_options(do_sample=False).temperature is None
    assert model.with_options(top_p=0.5).temperature == 0.7
    beams = model.with_options(num_beams=3, do_sample=False)
    assert (beams.beams, beams.length_penalty) == (3, 0.5)
    assert model.chat_template == TEMPLATE
    assert model.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert model.origin["model_type"] == "llama"
    # A file of its own comes first.
    (folder / "chat_template.jinja").write_text("{{ 1 }}")
    assert load(folder).chat_template == "{{ 1 }}"
    # As before 2023: in the config.
    (folder / "generation_config.json").unlink()
    write(folder, "config.json", repetition_penalty=1.5)
    assert load(folder).repetition_penalty == 1.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"typical_p": 0.9}, "'typical_p': 0.9 is not supported"),
        ({"sequence_bias": [[[1], 2.0]]}, "sequence_bias="),
        ({"eos_token_id": "a"}, r"'eos_token_id': .* \[0, 17\)"),
        ({"forced_eos_token_id": 17}, r"_eos_token_id': .* \[0, 17\)"),
        ({"forced_bos_token_id": [1, 2]}, "it must be one id"),
        ({"min_length": 5}, "Write min_new_tokens"),
        ({"bad_words_ids": [[1, 2]]}, "only words of one id"),
        ({"do_sample": True, "num_beams": 2}, "beams"),
        ({"temperature": -1, "do_sample": True}, "'temperature'"),
        ({"min_new_tokens": 8, "max_new_tokens": 8}, "`min_length` must be"),
        ({"early_stopping": "soon"}, "'early_stopping'"),
    ],
)
def test_keys_that_change_outputs_are_refused(folder, values, message):
    write(folder, **values)
    with pytest.raises(ValueError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("values", "start", "ends"),
    [
        ({"bos_token_id": 50256}, None, (3, 13)),
        ({"bos_token_id": 17, "eos_token_id": 17}, None, ()),
        ({"eos_token_id": [-1, 3]}, 1, (3,)),
    ],
)
def test_symbols_beyond_the_vocabulary_are_ignored(folder, values, start, ends):
    """As transformers does, where it warns of them."""
    write(folder, **values)
    with pytest.warns(UserWarning, match="ignored") as told:
        model = load(folder)
    assert (model.start_id, model.end_ids) == (start, ends)
    (warning,) = told
    words = [f"{key}={value}" for key, value in values.items()]
    for word in (*words, str(folder / "generation_config.json"), "[0, 17)"):
        assert word in str(warning.message)


def test_keys_of_sampling_are_unused_without_it(folder):
    write(folder, temperature=0.0, top_p=2.0, max_length=9)
    model = load(folder)
    assert model.temperature is None
    assert model.sampling["temperature"] == model.sampling["top_p"] == 1.0
    assert model.max_positions == 9


def test_a_table_may_be_shorter_than_padded_prompts():
    """10 tokens, padded to 16 columns, and 6 more: all positions of GPT-2."""
    model = load(FIXTURES / "language_models" / "gpt2")
    with pytest.raises(ValueError, match="`max_new_tokens` must be at most 15"):
        model.generate([[5]], max_new_tokens=16)
    message = "14 tokens, and 3 more.*16 positions.*most 2"
    with pytest.raises(ValueError, match=message):
        model.generate([[5] * 14], max_new_tokens=3)
    model = model.with_options(max_new_tokens=6, end_ids=2)
    found = model.generate([[*range(5, 15)]])
    assert found.tolist() == [[16, 28, 28, 6, 1, 1]]
    assert [*model.stream([*range(5, 15)])] == found[0].tolist()


def test_folders_that_are_refused(folder, tmp_path):
    write(folder, "tokenizer_config.json", chat_template=[1])
    with pytest.raises(
        ValueError, match=r"'chat_template'.*chat_template.jinj"
    ):
        load(folder)
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match="`pairs` is an option of encoders"):
        load(folder, pairs=True)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        load(folder)
    weights.rename(folder / "model.Q4_1.gguf")
    command = r"model\.Q4_1\.gguf' is a GGUF file.*Load the checkpoint"
    with pytest.raises(ValueError, match=command):
        load(folder)
    with pytest.raises(ValueError, match=command):
        load(folder / "model.Q4_1.gguf")
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=command):
        load(folder)


@pytest.fixture(scope="module")
def model():
    """A language model of bytes, with random weights."""
    keras.utils.set_random_seed(0)
    model = kp.TransformerDecoderModel(
        260, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
    )
    for each in model.weights:
        each.assign(keras.random.normal(each.shape, seed=len(each.path)))
    return kp.PretrainedGenerator(
        model,
        source_tokenizer=kp.ByteTokenizer(add_end=False),
        max_length=9,
        chat_template=TEMPLATE,
        sampling={"top_k": 50},
        origin={"model_type": "llama"},
    )


def greedy(model, text):
    """The most likely bytes after a text, each from all before it."""
    ids = [each + 4 for each in text.encode()]
    before = len(ids)
    while len(ids) < before + model.max_length and ids[-1] != 3:
        logits = np.array(model.model(np.array([ids])))[0, -1]
        ids.append(1 + int(logits[1:].argmax()))  # 0 is padding
    found = bytes(each - 4 for each in ids[before:] if each > 3)
    return found.decode(errors="replace"), ids[-1] == 3


class Pieces(list):
    ended = True


@pytest.mark.parametrize("pieces", [["xab"], ["xa", "b"], ["x", "a", "by"]])
def test_no_piece_has_a_part_of_a_stop_string(pieces):
    assert "".join(Reply(Pieces(pieces), ["ab"])) == "x"
    assert "".join(Reply(Pieces(pieces), ["abz"])) == "".join(pieces)


@pytest.mark.tensorflow
def test_a_chat_continues_its_text(model):
    """The template's text alone, without another start symbol before it."""
    turns = [*HELLO, {"role": "assistant", "content": "ho"}, *HELLO]
    text = "user:Hi\nassistant:ho\nuser:Hi\n"
    assert model.prompt_of(turns) == text
    expected, ended = greedy(model, text)
    stream = model.stream_chat(turns)
    assert stream.ended is None
    assert "".join(stream) == expected
    assert stream.ended is ended
    # Cut before the first of the stop strings, wherever pieces end.
    stop = expected[2:4]
    stream = model.stream_chat(turns, stop=[stop, "\x00" * 9])
    assert "".join(stream) == expected[: expected.index(stop)]
    assert stream.ended is True
    # A text alone has the tokenizer's start symbol before it.
    whole = model.generate(["Hi"])[0]
    stop = whole[1:]
    assert model.generate(["Hi"], stop=stop) == [whole[: whole.index(stop)]]


@pytest.mark.tensorflow
def test_sampling_has_seeds(model):
    sampled = model.with_options(do_sample=True)
    first = sampled.chat(HELLO, seed=1)
    assert sampled.chat(HELLO, seed=1) == first
    assert sampled.chat(HELLO, seed=2) != first
    # The same generator, and the same compiled functions.
    assert model.with_options(do_sample=True) is sampled
    # 0 takes the most likely token, as in the command.
    greedy = sampled.with_options(temperature=0, top_p=0.9)
    assert greedy is sampled.with_options(do_sample=False)
    made = kp.PretrainedGenerator(model.model, temperature=0, top_k=3)
    assert made.search.decoding.draw is None
    # At temperature 1 where no other is known, as in transformers.
    assert made.with_options(do_sample=True).temperature == 1.0
    made = kp.PretrainedGenerator(model.model, do_sample=True)
    assert made.is_drawn
    made = kp.PretrainedGenerator(model.model, temperature=0)
    assert made.with_options(do_sample=True, top_k=3).is_drawn


@pytest.fixture(scope="module")
def short(model):
    """The model with a tokenizer that cuts texts."""
    tokenizer = kp.ByteTokenizer(add_end=False, max_length=5)
    return kp.PretrainedGenerator(
        model.model, source_tokenizer=tokenizer, max_length=2
    )


def batches(texts):
    """A dataset, of which each batch is tokenized in a graph."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(texts).batch(2)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, model: model.generate(x), "2 of 3"),
        (lambda x, model: model.predict(batches(x), verbose=0), "2"),
        (lambda x, model: model.stream(x[0]), "1 of 1"),
        (lambda x, model: model.score(x, ["a", "b", "c"]), "2 of 3"),
    ],
    ids=["generate", "dataset", "stream", "score"],
)
def test_texts_that_are_cut_are_reported(short, call, words):
    message = f"^Cut to 5 tokens: {words} texts. Split them$"
    with pytest.warns(UserWarning, match=message) as told:
        call(["too long", "ab", "longer"], short)
    # Keras hands TensorFlow's tensors to NumPy 2, which warns too.
    (warning,) = [each for each in told if each.category is UserWarning]
    assert warning.filename == __file__
    short._ids("x", ["abcd", ""], short.source_tokenizer)  # these fit


@pytest.mark.tensorflow
def test_files_keep_all(model, tmp_path):
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.search.decoding == model.search.decoding
    assert again.origin == {"model_type": "llama"}
    assert again.chat_template == TEMPLATE
    assert again.sampling == {"top_k": 50}


@pytest.mark.tensorflow
def test_weights_that_were_added_count(model):
    copied = type(model.model).from_config(model.model.get_config())
    copied.set_weights(model.model.get_weights())

    def made():
        return kp.PretrainedGenerator(
            copied,
            source_tokenizer=model.source_tokenizer,
            max_length=9,
            chat_template=TEMPLATE,
        )

    old = made()
    before = old.generate(["Hi"])
    old.predict(["Hi"], verbose=0)
    kp.training.enable_lora(old, rank=2)
    for each in copied.trainable_weights:
        each.assign(keras.random.normal(each.shape, seed=len(each.path)))
    called = made()(keras.ops.convert_to_tensor(["Hi"]))
    found = [text.decode() for text in called["text"].numpy()]
    assert found != before
    assert old.generate(["Hi"]) == found
    assert old.predict(["Hi"], verbose=0)["text"].tolist() == found


@pytest.mark.tensorflow
def test_numbers_are_not_traced_again(model, monkeypatch, caplog):
    from keras_posenc.generation.step import First, Step

    traced = []
    for kind in (First, Step):
        call = kind.call

        def counted(self, inputs, kind=kind, call=call):
            traced.append(kind)
            return call(self, inputs)

        monkeypatch.setattr(kind, "call", counted)
    # Layers without steps that were traced before.
    made = kp.PretrainedGenerator(
        model.model,
        source_tokenizer=model.source_tokenizer,
        max_length=9,
        chat_template=TEMPLATE,
    )
    for number in (3, 8):
        sampled = made.with_options(
            max_new_tokens=number,
            temperature=3 / number,
            top_p=0.1 * number,
            min_p=0.01 / number,
            repetition_penalty=1 + 1 / number,
        )
        sampled._begin_with(number)
        found = "".join(sampled.stream("Hi"))
        several = sampled.generate(["Hi", "x" * number], seed=number)
        assert sampled.generate(["Hi"], seed=number) == [found]
        found = sampled.predict(["Hi", "x" * number], seed=number, verbose=0)
        assert several == found["text"].tolist()
    assert traced == [First, Step]
    traced.clear()
    for length in (1, 9, 30, 99):
        made.chat([{"role": "user", "content": "x" * length}])
    assert traced == [Step]  # this one does not sample
    assert "retracing" not in caplog.text


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_length": 3},
            "`max_length` is no option of gen.* max_new_tokens",
        ),
        ({"max_new_tokens": 0}, "`max_new_tokens` must be a positive"),
        ({"tempreature": 1.0}, "`tempreature` is no option"),
        ({"do_sample": False, "top_k": 3}, "excludes the options of sampling"),
        ({"stop": [3]}, "`stop` must be"),
        ({"seed": "a"}, "`seed` must be"),
        ({"beams": 2}, "beams=2. Make a gen.* give beams=1 to `chat`"),
        ({"temperature": -1}, "must be 0, for the .*, or a .* temperature=-1"),
        ({"temperature": 0, "seed": 1}, "`seed` must be None"),
    ],
)
def test_options_are_checked(model, options, message):
    with pytest.raises(ValueError, match=message):
        model.chat(HELLO, **options)


@pytest.mark.tensorflow
def test_refusals(model, folder):
    with pytest.raises(ValueError, match=r"list or an array.*x=None"):
        model.generate(None)
    with pytest.raises(
        ValueError, match=r"`stop` is no option.* of a call .*: stop='x'"
    ):
        model.with_options(stop="x")
    with pytest.raises(ValueError, match="`seed` must be None"):
        model.predict([[5, 6]], seed=1, verbose=0)
    with pytest.raises(ValueError, match="no template of chats"):
        load(folder).chat(HELLO)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    with pytest.raises(ValueError, match="without from_ids=True"):
        load(folder).chat(HELLO)


@pytest.mark.tensorflow
def test_threads_share_a_model(model):
    """A seed gives the same outputs whatever other threads sample."""
    options = {"temperature": 9.0, "max_new_tokens": 4}

    def run(seed):
        several = model.generate(["Hi"] * 6, batch_size=2, seed=seed, **options)
        return several, model.chat(HELLO, seed=seed, **options)

    wanted = [run(seed) for seed in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert [*pool.map(run, [*range(4)] * 2)] == wanted * 2

"""An export behind OpenAI's API, by OpenAI's own client."""

import importlib
import json
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.recipes import kserve_server

pytestmark = pytest.mark.tensorflow
pytest.importorskip("kserve")
openai = pytest.importorskip("openai")
pytest.importorskip("jinja2")

TEMPLATE = (
    "{% for m in messages %}{{ m.role + ':' + m.content }}\n{% endfor %}"
    "{{ bos_token }}"
)
CHAT = [{"role": "user", "content": "h"}]
SILENT = {"verify": False, "verbose": False}


@pytest.fixture(scope="module")
def chatty():
    """A language model of bytes, with random weights, that writes letters."""
    model = kp.TransformerDecoderModel(
        260, d_model=16, num_layers=1, num_heads=2, intermediate_dim=16
    )
    for number, each in enumerate(model.weights, 300):
        each.assign(2 * keras.random.normal(each.shape, seed=number))
    letters = {4 + code for code in b"abcdefghijklmnopqrstuvwxyz"}
    return kp.PretrainedGenerator(
        model,
        source_tokenizer=kp.ByteTokenizer(),
        chat_template=TEMPLATE,
        special_tokens={"bos_token": "<s>"},
        max_length=24,
        suppress_ids=[each for each in range(260) if each not in letters],
        end_ids=4 + ord("b"),
    )


@pytest.fixture(scope="module")
def encoder():
    keras.utils.set_random_seed(0)
    tokenizer = kp.CharacterTokenizer("abc")
    return keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokenizer,
            keras.layers.Embedding(
                tokenizer.vocabulary_size(), 4, mask_zero=True
            ),
            kp.MaskedAveragePooling1D(),
        ]
    )


@pytest.fixture(scope="module")
def client_of():
    """Returns the client of a folder's model, in this process."""
    from fastapi import FastAPI
    from starlette.testclient import TestClient

    sys.path.insert(0, str(kserve_server.PREDICTOR.parent))
    try:
        api = importlib.import_module("openai_api")
    finally:
        del sys.path[0]

    def make(folder, checkpoint=None):
        app = FastAPI()
        served = api.predictor.Predictor("it", folder, 1.0, 200, 8)
        served.refresh()
        template = checkpoint and api.Template(checkpoint)
        api.add_routes(app, served, template)
        return openai.OpenAI(
            base_url="http://testserver/openai/v1",
            api_key="none",
            http_client=TestClient(app),
        )

    return make


@pytest.fixture(scope="module")
def chats(chatty, client_of, tmp_path_factory):
    """The client of the model that chats."""
    folder = tmp_path_factory.mktemp("chat")
    config = {"chat_template": TEMPLATE, "bos_token": {"content": "<s>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text('{"max_position_embeddings": 100}')
    kp.export_saved_model(
        chatty,
        folder / "chat",
        signatures=chatty.chat_signatures(),
        **SILENT,
    )
    return client_of(folder / "chat", folder)


@pytest.mark.slow
def test_export_for_chats_is_verified(chatty, tmp_path):
    exported = kp.export_saved_model(
        chatty,
        tmp_path,
        signatures=chatty.chat_signatures(),
        max_length=8,
        verbose=False,
    )
    tried = {case.signature for case in exported.report.cases}
    assert tried == {"serving_default", "prompt", "decode", "detokenize"}


def create(client, messages=CHAT, **options):
    return client.chat.completions.create(
        model="it", messages=messages, **options
    )


def test_chat_is_the_models(chats, chatty):
    reply = chatty.chat(CHAT)
    assert len(reply) == 24
    assert len(set(reply)) > 2  # else this would prove little
    found = create(chats)
    (choice,) = found.choices
    assert choice.message.content == reply
    assert choice.finish_reason == "length"
    assert found.usage.completion_tokens == 24
    assert found.usage.prompt_tokens == len(chatty.prompt_of(CHAT)) == 10
    asked = [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "Né?"},
    ]
    parts = [{"type": "text", "text": "N"}, {"type": "text", "text": "é?"}]
    turns = [asked[0], {"role": "user", "content": parts}]
    (choice,) = create(chats, turns, max_tokens=5).choices
    assert choice.message.content == chatty.chat(asked, max_new_tokens=5)
    ended = [{"role": "user", "content": "j"}]
    (choice,) = create(chats, ended).choices
    assert choice.message.content == chatty.chat(ended)
    assert choice.finish_reason == "stop"


def test_stream_and_stop_are_the_models(chats, chatty):
    whole = chatty.chat(CHAT)
    for options in {}, {"stop": ["never", whole[2:5]]}:
        pieces = [*create(chats, stream=True, **options)]
        texts = [each.choices[0].delta.content or "" for each in pieces]
        assert "".join(texts) == chatty.chat(CHAT, **options)
        assert options or len(texts) > 20
        reason = pieces[-1].choices[0].finish_reason
        assert reason == ("stop" if options else "length")
    counted = create(chats, stream=True, stream_options={"include_usage": True})
    assert [*counted][-1].usage.total_tokens == 34


@pytest.mark.parametrize(
    ("stop", "pieces", "ended"),
    [
        ([], ["a", "", "é", "b", "c", "", "\ufffd"], False),
        (["éc", "bd"], ["a", "", "", "é", "bc", "", "\ufffd"], False),
        (["bc"], ["a", "", "é", "", ""], True),
        ("é", ["a", "", ""], True),
    ],
    ids=str,
)
def test_pieces_are_of_whole_characters(client_of, stop, pieces, ended):
    """... that belong to no text that stops the reply."""
    written = [*"aébc".encode(), 0xC3]

    def decode(state):
        logits = np.zeros((1, 256))
        logits[0, written[state["slot"]]] = 1
        return {"logits": logits, "slot": state["slot"] + 1}

    def detokenize(inputs):
        text = bytes(inputs["ids"][0].tolist()).decode("utf-8", "replace")
        return {"text": [text.encode()], "ended": [False]}

    runs = {
        "prompt": lambda _: {"slot": 0, "tokens": np.ones((1, 3), "int32")},
        "decode": decode,
        "detokenize": detokenize,
    }
    signatures = {name: SimpleNamespace(run=run) for name, run in runs.items()}
    body = {"stop": stop, "max_tokens": len(written)}
    reply = sys.modules["openai_api"].Reply(signatures, "", body, None)
    found = [*reply]
    assert (found, reply.ended) == (pieces, ended)
    assert reply.prompt_tokens == 4


def test_sampling_follows_seed_and_probability(chats, chatty):
    one, two, other = (
        create(chats, temperature=1.5, seed=seed).choices[0].message.content
        for seed in (1, 1, 2)
    )
    assert one == two != other
    least = create(chats, temperature=1.5, top_p=1e-9).choices[0]
    assert least.message.content == chatty.chat(CHAT)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n": 2}, "`n` is not supported"),
        ({"max_tokens": 0}, "`max_tokens` must be above 0"),
        ({"temperature": 3}, r"must be 0, or in \[1e-30, 2\]"),
        ({"temperature": 1e-310}, r"must be 0, or in \[1e-30, 2\]"),
        ({"stop": [""]}, "none empty"),
        ({"stop": 3}, "`stop` cannot be 3"),
        ({"seed": True}, "`seed` cannot be True"),
        ({"response_format": {"type": "json_object"}}, "not supported"),
        ({"messages": []}, "must end with one to reply to"),
        ({"messages": [{"role": "me", "content": ""}]}, "must have a `role`"),
        ({"messages": CHAT * 14}, "has 101 tokens, and .* 100 positions"),
        ({"messages": CHAT * 40}, "may have 200 bytes"),
    ],
    ids=str,
)
def test_what_is_refused_of_chats(chats, options, reason):
    with pytest.raises(openai.BadRequestError, match=reason):
        create(chats, **options)


def test_embeddings_are_the_models(encoder, client_of, tmp_path):
    import tensorflow as tf

    kp.export_saved_model(encoder, tmp_path, **SILENT)
    client = client_of(tmp_path)
    texts = ["abc", "", "cab c"]
    wanted = encoder(tf.constant(texts)).numpy()
    for form in {}, {"encoding_format": "float"}:  # base64 by default
        found = client.embeddings.create(model="it", input=texts, **form)
        vectors = [each.embedding for each in found.data]
        np.testing.assert_allclose(vectors, wanted, rtol=0, atol=1e-6)
    (one,) = client.embeddings.create(model="it", input="abc").data
    np.testing.assert_allclose(one.embedding, wanted[0], rtol=0, atol=1e-6)
    for options, reason in (
        ({"input": [1, 2]}, "`input` must be a string"),
        ({"input": []}, "list of at least one"),
        ({"input": ["a"] * 9}, "may have 8 examples"),
        ({"input": "a" * 201}, "may have 200 bytes"),
        ({"input": "a", "dimensions": 2}, "can only be 4"),
    ):
        with pytest.raises(openai.BadRequestError, match=reason):
            client.embeddings.create(model="it", **options)
    with pytest.raises(openai.BadRequestError, match="does not chat"):
        create(client)

"""A chat is rendered by a template."""

from keras_posenc.text.chat_template import render

template = "{{ bos_token }}{{ messages[0].content }}"
chat = [{"role": "user", "content": "Hello"}]
assert render(template, chat, tokens={"bos_token": "<s>"}) == "<s>Hello"

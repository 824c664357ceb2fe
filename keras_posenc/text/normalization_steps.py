"""Steps that normalize texts, as those of the library "tokenizers" do."""

from collections.abc import Callable, Mapping
from typing import Any

from keras_posenc.text.byte_pair_words import WHITE, ranges

# Marks that Unicode has later than the library: it leaves them.
_LATER = """
    7fd 898-89f 8ca-8d3 9fe afa-aff b55 c04 c3c cf3 d00 d3b-d3c d81 eba ece
    1715 180f 1abf-1ace 1cf7 1df6-1dfa a82c a8ff 10d24-10d27 10eab-10eac
    10efd-10eff 10f46-10f50 10f82-10f85 11070 11073-11074 110c2 11145-11146
    111c9 111ce-111cf 11241 1133b 1145e 1182c-1183a 11930-11935 11937-11938
    1193b-1193e 11940 11942-11943 119d1-119d7 119da-119e0 119e4 11a01-11a0a
    11a33-11a39 11a3b-11a3e 11a47 11a51-11a5b 11a8a-11a99 11d31-11d36 11d3a
    11d3c-11d3d 11d3f-11d45 11d47 11d8a-11d8e 11d90-11d91 11d93-11d97
    11ef3-11ef6 11f00-11f01 11f03 11f34-11f3a 11f3e-11f42 13440 13447-13455
    16f4f 16f7f-16f87 16fe4 16ff0-16ff1 1cf00-1cf2d 1cf30-1cf46 1e08f
    1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef
"""
# A step of `SentencepieceTokenizer` alone: see graphemes.py.
GRAPHEMES = "graphemes"
# Without a rule or a case; in place of a zero byte, which would end a text.
_NO_ZERO = "\uffff"


def lower(texts: Any) -> Any:
    """Lowercases each character by itself. A zero byte ends a text."""
    import tensorflow as tf

    # Not by TensorFlow, which depends on the words around (a final sigma)
    # and on the locale (in Turkish, an I without a dot).
    for upper, small in (("I", "i"), ("İ", "i̇"), ("Σ", "σ")):
        texts = tf.strings.regex_replace(texts, upper, small)
    return tf.strings.lower(texts, "utf-8")


def _replace(pattern: str, by: str) -> Callable[[Any], Any]:
    def replace(texts: Any) -> Any:
        import tensorflow as tf

        return tf.strings.regex_replace(texts, pattern, by)

    return replace


def _form(name: str) -> Callable[[Any], Any]:
    def normalize(texts: Any) -> Any:
        import tensorflow_text

        return tensorflow_text.normalize_utf8(texts, name)

    return normalize


STEPS: Mapping[str, Callable[[Any], Any]] = {
    "apostrophes": _replace("''", '"'),
    "backticks": _replace("``", '"'),
    "lowercase": lambda texts: lower(_replace(r"\x00", _NO_ZERO)(texts)),
    "nfc": _form("NFC"),
    "nfd": _form("NFD"),
    "nfkc": _form("NFKC"),
    "nfkd": _form("NFKD"),
    "spaces": _replace(rf"[{WHITE}]{{2,}}|[\n\r\t]", " "),
    "strip": _replace(rf"\A[{WHITE}]+|[{WHITE}]+\z", ""),
    "strip_accents": _replace(
        rf"(?:[^\PM{ranges(_LATER)}]|[\x{{1cf2}}\x{{1cf3}}])+", ""
    ),
    "strip_right": _replace(rf"[{WHITE}]+\z", ""),
}

# The same steps, as parts of a `tokenizer.json`.
PARTS: Mapping[str, Mapping[str, Any]] = {
    **{
        name.lower(): {"type": name}
        for name in ("Lowercase", "NFC", "NFD", "NFKC", "NFKD")
    },
    **{
        name: {"type": "Replace", "pattern": pattern, "content": by}
        for name, pattern, by in (
            ("apostrophes", {"String": "''"}, '"'),
            ("backticks", {"String": "``"}, '"'),
            ("spaces", {"Regex": r"\s{2,}|[\n\r\t]"}, " "),
        )
    },
    "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "strip_accents": {"type": "StripAccents"},
    "strip_right": {"type": "Strip", "strip_left": False, "strip_right": True},
}

"""Folders of checkpoints, as sentence-transformers writes them."""

import json


def add_modules(folder):
    """Makes an encoder's folder that of a sentence encoder, by means."""
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": path}
        for kind, path in (("Transformer", ""), ("Pooling", "1"))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1").mkdir()
    (folder / "1" / "config.json").write_text('{"pooling_mode": "mean"}')

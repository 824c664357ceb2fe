"""One contestant in a process of its own: `python _peer.py NAME`.

Each line that it reads is a `Size` as JSON; it runs that once and answers with
the milliseconds and, in gigabytes, the most memory it has held since the size
changed, and what it held at rest, its libraries loaded.
"""

import functools
import json
import re
import sys
from pathlib import Path

from _contest import Size, milliseconds


def main() -> None:
    name = sys.argv[1]
    if name == "PyTorch":
        from _pytorch import prepare
    elif name == "CTranslate2":
        from _ctranslate2 import prepare
    elif name.startswith("sentence-transformers"):
        from _sentence_transformers import prepare
    elif name.startswith("FastEmbed"):
        from _fastembed import prepare
    elif name.startswith(("transformers", "CTranslate2,", "llama.cpp")):
        from _language_models import prepare
    else:
        from _contestants import prepare
    prepare(name, Size(batch=1, seq=2))()  # loads the libraries
    forget_peak()
    rest = peak()

    @functools.lru_cache(maxsize=1)
    def work(line: str):
        forget_peak()
        return prepare(name, Size(**json.loads(line)))

    for line in sys.stdin:
        took = milliseconds(work(line))
        print(json.dumps([took, peak(), rest]), flush=True)


def forget_peak() -> None:
    """Has Linux count from what is held now, not from what a parent held."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(r"VmHWM:\s*(\d+)", status)
    return int(kilobytes) / 1e6


if __name__ == "__main__":
    main()

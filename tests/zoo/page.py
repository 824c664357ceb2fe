"""The page of what the models of the table can be exported to."""

import json
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "zoo.json"


def write_page(entries, results): ...

"""docs/zoo.md, of the results in docs/zoo.json."""

import json
import re
from pathlib import Path

from tests.zoo.entries import FORMATS

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS, PAGE = DOCS / "zoo.json", DOCS / "zoo.md"
TITLES = {"saved_model": "SavedModel", "litert": "LiteRT", "onnx": "ONNX"}
HEAD = """\
# Models that were exported

{count} public models, built with random weights as their sources build them,
were each exported to SavedModel, LiteRT and ONNX. The table counts the files
that [gave the model's outputs](guarantees.md#exports-what-verified-means).

`make zoo ZOO="--only '*Bert*'"` runs some again (code: `tests/zoo`; every
name, with sizes and messages: `docs/zoo.json`). Results of {versions}, on
{processor}.

"""
REST = """
## Not in every format

All other models are verified in all three.

"""


def page(entries, results):
    """The page: counts by source, then what is not verified everywhere."""
    groups, rest = {}, []
    models = results["models"]
    for entry in sorted(entries.values(), key=group):
        groups.setdefault(group(entry), []).append(entry)
        cells = [cell(models, entry, name) for name in FORMATS]
        if any(each != "verified" for each in cells):
            rest.append([f"[{entry.name}]({entry.source})", *cells])
    rows = [[title, *counts(part, models)] for title, part in groups.items()]
    rows.append(["all", *counts(entries.values(), models)])
    text = HEAD.format(
        count=f"{len(entries):,}",
        versions=results["versions"],
        processor=results["processor"],
    )
    text += table(["source", *TITLES.values()], rows)
    return text + REST + table(["model", *TITLES.values()], rest)


def group(entry):
    """The source of an entry, as a title."""
    first = entry.name.partition("/")[0]
    if first == "applications":
        return "keras.applications"
    if first.startswith("keras-hub"):
        return f"keras-hub, {first.partition(' ')[2]}"
    host = re.search(r"//(?:www\.)?([^/]+)", entry.source)[1]
    return f"{host}, {first.replace('_', ' ')}"


def counts(entries, models):
    """Of each format, how many of some models are verified."""
    found = []
    for name in FORMATS:
        states = [state(models, entry, name) for entry in entries]
        done = states.count("verified")
        found.append(f"{done} of {len(states)}")
    return found


def state(models, entry, name):
    cells = models.get(entry.name, {}).get("formats", {})
    return cells.get(name, {"state": "not run"})["state"]


def cell(models, entry, name):
    """What came of a model in a format, in plain words."""
    found = state(models, entry, name)
    if found in ("not run", "verified"):
        return found
    cells = models[entry.name]["formats"][name]
    if found == "wrong":
        return "refused: outputs differ"
    return f"{found}: {escaped(reason(cells['error']))}"


def reason(error):
    """The beginning of a message, without the kind of the error."""
    line = next(iter(error.splitlines()), "")
    line = re.sub(r"^\w+(?:Error|Exception): ", "", line)
    line = line.removeprefix("The model needs operators that ")
    return line if len(line) <= 60 else line[:57].rsplit(" ", 1)[0] + " ..."


def escaped(text):
    """A message as Markdown that shows it."""
    return re.sub(r"([\\`*_{}\[\]<>#|$~])", r"\\\1", text)


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def load():
    """All results that the page shows."""
    if not RESULTS.exists():
        return {"versions": "", "processor": "", "models": {}}
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def write_page(entries, results):
    """Writes the page and its results; those of no entry are left out."""
    models = results["models"]
    results["models"] = {x: models[x] for x in entries if x in models}
    text = json.dumps(results, indent=0, sort_keys=True, allow_nan=False)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page(entries, results), encoding="utf-8")

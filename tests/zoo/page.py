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

Look here whether a model like yours can be exported. {count} public models,
built with random weights as their sources build them, were each exported to
SavedModel, LiteRT and ONNX. "Verified" means that the file gave the model's
outputs in a process without Keras ([what verified
means](guarantees.md#exports-what-verified-means)). A refused model leaves no
file.

`make zoo ZOO="--only '*Bert*'"` runs some again (code: `tests/zoo`; sizes,
seconds and whole messages: `docs/zoo.json`). Results of {versions}, on
{processor}.

"""
EVERYWHERE = "Verified in all three formats: "


def page(entries, results):
    """The page: a summary by source, then a table for each source."""
    groups = {}
    for entry in entries.values():
        groups.setdefault(group(entry), []).append(entry)
    models = results["models"]
    rows = [
        [f"[{title}](#{anchor(title)})", *counts(part, models)]
        for title, part in sorted(groups.items())
    ]
    rows.append(["all", *counts(entries.values(), models)])
    text = HEAD.format(
        count=f"{len(entries):,}",
        versions=results["versions"],
        processor=results["processor"],
    )
    text += table(["source", *TITLES.values()], rows)
    for title, part in sorted(groups.items()):
        whole, rows, left = [], [], []
        for entry in part:
            cells = [cell(models, entry, name) for name in FORMATS]
            link = f"[{entry.name.partition('/')[2]}]({entry.source})"
            if {*cells} == {"verified"}:
                whole.append(link)
            elif set(cells) == {"not run"}:
                left.append(link)
            else:
                rows.append([link, *cells])
        text += f"\n## {title}\n"
        if whole:
            text += f"\n{EVERYWHERE}{', '.join(whole)}.\n"
        if rows:
            text += "\n" + table(["model", *TITLES.values()], rows)
        if left:
            text += f"\nNot run: {', '.join(left)}.\n"
    return text


def group(entry):
    """The source of an entry, as a title."""
    first = entry.name.partition("/")[0]
    if first == "applications":
        return "keras.applications"
    if first.startswith("keras-hub"):
        return f"keras-hub, {first.partition(' ')[2]}"
    host = re.search(r"//(?:www\.)?([^/]+)", entry.source)[1]
    return f"{host}, {first.replace('_', ' ')}"


def anchor(title):
    return re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-")


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
    if found == "not run":
        return found
    cells = models[entry.name]["formats"][name]
    if found == "verified":
        return found
    if found == "wrong":
        return "refused: outputs differ"
    return f"{found}: {escaped(reason(cells['error']))}"


def reason(error):
    """The beginning of a message, without the kind of the error."""
    line = next(iter(error.splitlines()), "")
    line = re.sub(r"^\w+(?:Error|Exception): ", "", line)
    line = line.removeprefix("The model needs operators that ")
    return line if len(line) <= 90 else line[:87].rsplit(" ", 1)[0] + " ..."


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

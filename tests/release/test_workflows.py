"""The public workflows: what they may do, and what they name."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
JOBS = {
    f"{workflow}-{name}": job
    for workflow, content in WORKFLOWS.items()
    for name, job in content["jobs"].items()
}
# All else may only read.
MAY = {
    "release-attest": {"attestations": "write", "id-token": "write"},
    "release-publish": {"id-token": "write"},
    "release-github": {"contents": "write"},
    "release-site": {"contents": "write"},
    "docs-publish": {"contents": "write"},
}


def test_token_reads_only():
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name


@pytest.mark.parametrize("name", JOBS)
def test_job(name):
    job = JOBS[name]
    assert job.get("permissions", {}) == MAY.get(name, {})
    if "uses" in job:
        assert (ROOT / job["uses"]).is_file()
        return
    assert job["timeout-minutes"] <= 180
    makefile = (ROOT / "Makefile").read_text()
    for step in job["steps"]:
        if "uses" in step:
            assert re.search(r"@[0-9a-f]{40}$", step["uses"]), step
            if "/checkout@" in step["uses"]:  # only who pushes keeps its token
                keeps = step["with"]["persist-credentials"]
                assert keeps == (name == "docs-publish")
        # What others choose, such as a tag's name, is no part of a script.
        script = step.get("run", "")
        for value in re.findall(r"\$\{\{ *(\S+)", script):
            assert value.startswith("matrix."), script
        for target in re.findall(r"\bmake ([a-z-]+)", script):
            target = target.rstrip("-")
            assert re.search(rf"(?m)^{target}", makefile), script
        for path in re.findall(r"(?m)\b(?:release|tests)/\S+", script):
            assert (ROOT / path).exists(), script


def test_each_extra_is_installed_at_night():
    matrix = JOBS["nightly-installs"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert matrix["extra"] == ["core", *sorted(extras)]


def test_nothing_is_released_that_was_not_checked():
    jobs = WORKFLOWS["release"]["jobs"]
    before, last = {"github", "site"}, set()
    while before != last:
        last = before
        needs = (jobs[name].get("needs", []) for name in before)
        before = before.union(
            *([need] if isinstance(need, str) else need for need in needs)
        )
    assert before == set(jobs)


def test_site_of_a_tag_waits_for_its_release():
    triggers = WORKFLOWS["docs"][True]  # YAML 1.1 reads `on` so
    assert "tags" not in triggers["push"]
    assert "workflow_call" in triggers
    assert JOBS["release-site"]["needs"] == "publish"


def uploads(workflow):
    """Names of what a workflow uploads, and those that it calls."""
    for job in WORKFLOWS[workflow]["jobs"].values():
        if "uses" in job:
            yield from uploads(Path(job["uses"]).stem)
        for step in job.get("steps", ()):
            if step.get("uses", "").startswith("actions/upload-artifact@"):
                yield step["with"]["name"]


def test_no_two_artifacts_of_a_run_have_one_name():
    """The second upload would fail: they share one run."""
    for workflow in WORKFLOWS:
        names = list(uploads(workflow))
        assert len(names) == len(set(names)), names


def test_every_lock_is_audited():
    audited = set(JOBS["nightly-audit"]["strategy"]["matrix"]["lock"])
    hashed = {
        path.relative_to(ROOT).as_posix()
        for folder in ("requirements", "export")
        for path in (ROOT / folder).rglob("*.txt")
        if "--hash=" in path.read_text()
    }
    apart = {"oldest", "jax", "weights"}  # old on purpose; in others; data
    assert audited == hashed - {f"requirements/{name}.txt" for name in apart}

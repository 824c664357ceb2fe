"""What a benchmark has finished is kept, and measured again in time."""

import argparse
import itertools
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def test_what_is_finished_is_kept_until_the_report(tmp_path, monkeypatch):
    for name in ("TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.setenv(name, "1")  # the import sets them otherwise
    monkeypatch.syspath_prepend(BENCHMARKS)
    import _command
    import _report

    for module in (_command, _report):
        monkeypatch.setattr(module, "KEPT", tmp_path / "bench")
    monkeypatch.setattr(_command, "ROOT", tmp_path)
    source = tmp_path / "keras_posenc_worker" / "serving.py"
    source.parent.mkdir()
    counter = itertools.count()

    def run(only="", fresh=False):
        options = argparse.Namespace(only=only, fresh=fresh, to=None, rounds=1)
        kept = _command.Kept("speed", options)
        return [
            kept.once(name, lambda: next(counter))
            for name in ("first", "second")
            if only in name
        ]

    assert run() == run() == [0, 1]
    assert run(only="second", fresh=True) == [2]
    assert run() == [0, 2]
    assert run(fresh=True) == [3, 4]
    source.write_text("changed")
    assert run() == [5, 6]
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert run() == [7, 8]
    found = {"machine": {"processor": "its name"}, "contests": []}
    _report.report("speed", found, tmp_path)
    assert run() == [9, 10]

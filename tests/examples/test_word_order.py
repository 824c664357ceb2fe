"""The example of word order runs and refuses."""

import re

import pytest

from tests.examples import scripts


@pytest.mark.tensorflow
@pytest.mark.slow
def test_quick_run_reports_and_exports(tmp_path):
    report = scripts.run(
        "word_order", "--quick", "--out", "out", folder=tmp_path
    )
    for part in (
        "without positions",
        "with positions",
        "Held-out sentences",
        "worst difference",
        "word_order.tflite",
        "MediaPipe, word_order_int8.tflite",
    ):
        assert part in report
    # MediaPipe's score of the same sentence is Keras's.
    found = [
        re.search(rf"│ {name} +│ +(0\.\d+) ", report)[1]
        for name in ("Keras", r"MediaPipe, word_order\.tflite")
    ]
    assert abs(float(found[0]) - float(found[1])) <= 2e-6
    version = tmp_path / "out" / "word_order" / "1"
    assert (version / "saved_model.pb").is_file()
    assert (tmp_path / "out" / "word_order.tflite").stat().st_size > 0


USER_ERRORS = {
    "missing": None,
    "not UTF-8": b"\xff\xfe\xfa caf\xe9 " * 50,
    "too few sentences": b"This is the only sentence here.\n",
}


@pytest.mark.parametrize("content", USER_ERRORS.values(), ids=USER_ERRORS)
def test_user_error_is_one_line(tmp_path, content):
    path = tmp_path / "texts.txt"
    if content is not None:
        path.write_bytes(content)
    finished = scripts.run_any("word_order", "--texts", path, folder=tmp_path)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) == 1
    assert "Traceback" not in finished.stderr
    assert [p.name for p in tmp_path.iterdir() if p != path] == []

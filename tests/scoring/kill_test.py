"""Kills runs at random instants, and takes them up again.

    python tests/scoring/kill_test.py --kills 50 [--seed 0]

Each run scores the same files by the command, in processes of its own, until
SIGKILL ends it, or one of its workers alone. After the last one a run that
nobody ends must leave each row once, good or bad, and nothing else.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILES, ROWS, WINDOW = 12, 3000, 500


def make(folder):
    """An artifact of vectors, and files of them; each fifth row is null."""
    import keras
    import pyarrow as pa
    import pyarrow.parquet as pq

    import keras_posenc as kp

    model = keras.Sequential(
        [keras.Input((3,), name="vector"), keras.layers.Dense(2, name="out")]
    )
    kp.export_litert(model, folder / "model.tflite", verbose=False)
    (folder / "data").mkdir()
    for index in range(FILES):
        ids = range(index * ROWS, (index + 1) * ROWS)
        vectors = [[float(i), 1.0, 2.0] if i % 5 else None for i in ids]
        table = pa.table({"id": ids, "vector": vectors})
        pq.write_table(table, folder / "data" / f"{index:02}.parquet")


SCORE = f"""
import sys
from keras_posenc.scoring import Scorer
from keras_posenc.scoring.files import score_files

scorer = Scorer("model.tflite", keep=["id"], window={WINDOW})
report = score_files(scorer, "data", out="out", workers=2, verbose=False)
print(report)
sys.exit(not report.passed)
"""


def begin(folder):
    """A run, without Keras, which it does not need."""
    root = Path(__file__).resolve().parents[2] / "keras_posenc"
    code = (
        "import sys, types\n"
        "sys.modules['keras_posenc'] = types.ModuleType('keras_posenc')\n"
        f"sys.modules['keras_posenc'].__path__ = [{str(root)!r}]\n{SCORE}"
    )
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )


def workers_of(pid):
    """The processes that score for another one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = (
                (process / "stat").read_text().rpartition(")")[2].split()[1]
            )
            command = (process / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if int(parent) == pid and b"keras_posenc.scoring.worker" in command:
            found.append(int(process.name))
    return found


def check(out):
    """What is wrong with the outputs of a run that was not ended."""
    import pyarrow.parquet as pq

    wrong = []
    for index in range(FILES):
        ids = range(index * ROWS, (index + 1) * ROWS)
        good = pq.read_table(out / f"{index:02}.parquet")
        bad = pq.read_table(out / "_bad" / f"{index:02}.parquet")
        if good["id"].to_pylist() != [i for i in ids if i % 5]:
            wrong.append(f"good rows of {index}")
        if bad["id"].to_pylist() != [i for i in ids if not i % 5]:
            wrong.append(f"bad rows of {index}")
    rest = len([*out.iterdir(), *(out / "_bad").iterdir()]) - 2 * FILES - 1
    return [*wrong, *["something is left behind"] * bool(rest)]


def run(folder, kills, seed):
    """Returns what is wrong, in words."""
    rng = random.Random(seed)
    began = time.monotonic()
    whole = begin(folder)
    output, _ = whole.communicate()
    seconds = time.monotonic() - began
    print(f"{output.strip()} (in {seconds:.1f} s)", flush=True)
    if whole.returncode:
        return ["the first run failed"]
    wrong = check(folder / "out")
    killed = workers = ended = half_made = 0
    for kill in range(kills):
        # Anew every tenth time; else what is there is taken up.
        if kill % 10 == 0:
            shutil.rmtree(folder / "out", ignore_errors=True)  # none yet
        elif not ended % 3:  # or there would be nothing left to do
            for path in rng.sample(range(FILES), 3):
                (folder / "out" / f"{path:02}.parquet").unlink(missing_ok=True)
        process = begin(folder)
        time.sleep(rng.uniform(0.2, 1.0) * seconds)
        target = process.pid
        if kill % 3 == 2 and (found := workers_of(process.pid)):
            target = rng.choice(found)
        if process.poll() is not None:
            ended += 1
        elif target == process.pid:
            killed += 1
            process.kill()
        else:
            workers += 1
            os.kill(target, signal.SIGKILL)
        process.communicate()
        time.sleep(0.1)  # its workers see that they are alone
        out = folder / "out"
        half_made += out.exists() and any(out.glob("*.partial"))
        names = (
            {path.name for path in out.glob("[0-9]*")} if out.exists() else ()
        )
        for name in names:
            import pyarrow.parquet as pq

            if pq.read_metadata(out / name).num_rows != ROWS * 4 // 5:
                wrong.append(f"{name} is not whole after kill {kill}")
        if kill % 10 == 9:
            print(f"{kill + 1} after {time.monotonic() - began:.0f} s")
    last = begin(folder)
    last.communicate()
    wrong += ["the last run failed"] * bool(last.returncode)
    wrong += check(folder / "out")
    print(
        f"{killed} runs and {workers} workers killed, {half_made} of them with "
        f"something half made, {ended} done before; {len(wrong)} wrong"
    )
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    folder = Path(tempfile.mkdtemp())
    try:
        make(folder)
        failures = run(folder, options.kills, options.seed)
    finally:
        shutil.rmtree(folder)
    for failure in failures:
        print(failure)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())

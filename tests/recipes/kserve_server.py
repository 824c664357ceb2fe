"""KServe's model server around an export, as a process of its own."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

PREDICTOR = Path(__file__).parents[2] / "export" / "kserve" / "predictor.py"


def start(model, log, program=(PREDICTOR,), environment=None):
    """The server's process and its address, once it answers.

    It is at 127.0.0.1, on a port that the system chose.

    Args:
        model: A folder of versions, or a file.
        log: The file, open, that takes what it says.
        program: What Python runs, with arguments that come before its own.
        environment: Variables of its environment besides those here.
    """
    process = subprocess.Popen(
        [
            *(sys.executable, *program, "--model_name", "judge"),
            *("--model_dir", model, "--http_host", "127.0.0.1"),
            *("--http_port", "0", "--enable_latency_logging", "false"),
            *("--poll_seconds", "0.2"),
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
    )
    for _ in range(3000):  # weights of half a GB, on a busy machine
        found = re.search(
            r"serving on port (\d+)", Path(log.name).read_text("utf-8")
        )
        if found:
            return process, f"http://127.0.0.1:{found[1]}/v1/models/judge"
        if process.poll() is not None:
            break
        time.sleep(0.1)
    stop(process)
    raise RuntimeError(Path(log.name).read_text("utf-8")[-2000:])


def stop(process):
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""The launcher of training for Slurm starts it again when it fails."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "export" / "training"
EXAMPLE = "examples/train_hosts.py"


# What srun does, a signal that the script gets meanwhile, how often the job was
# queued again, the exit status, and whether it is queued again now.
RUNS = [
    ("true", None, "0", 0, False),
    ("exit 134", None, "0", 134, True),
    ("exit 134", None, "20", 134, False),
    ("exec sleep 5", signal.SIGUSR1, "0", 0, True),  # its time is over
    ("exec sleep 5", signal.SIGTERM, "0", -signal.SIGTERM, False),  # cancelled
]


@pytest.mark.parametrize(("srun", "sent", "restarts", "code", "requeued"), RUNS)
def test_slurm_queues_again_what_did_not_end(
    tmp_path, srun, sent, restarts, code, requeued
):
    """With stand-ins for Slurm's programs."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    calls = tmp_path / "calls"
    for name, line in (("srun", srun), ("scontrol", "true")):
        program = tmp_path / name
        note = f'echo "{name} $*" >>"{calls}"'
        program.write_text(f"#!{bash}\n{note}; {line}\n")
        program.chmod(0o755)
    process = subprocess.Popen(
        [bash, RECIPES / "slurm.sh", "/shared/run", "--epochs", "3"],
        env={
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_RESTART_COUNT": restarts,
            "SLURM_CPUS_PER_TASK": "8",
        },
        stderr=subprocess.DEVNULL,
    )
    if sent is not None:
        deadline = time.monotonic() + 20
        while not (calls.exists() and calls.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(sent)
    assert process.wait(30) == code
    first, *others = calls.read_text().splitlines()
    assert first.endswith(f"python {EXAMPLE} --folder /shared/run --epochs 3")
    assert " --cpus-per-task=8 " in first
    assert others == ["scontrol requeue 7"] * requeued

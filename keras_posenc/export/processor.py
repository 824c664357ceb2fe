"""The processor that a file is verified on."""

import platform
from pathlib import Path


def processor() -> str:
    """Returns the processor's name, and whether it has VNNI if it is an x86.

    VNNI are its instructions for products of 8 bits.
    """
    name, machine = platform.processor(), platform.machine()
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:  # not Linux
        return name or machine or "an unknown processor"
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    found = facts.get("model name") or name or machine
    flags = facts.get("flags", "").split()  # of an x86
    has_vnni = any(flag.endswith("_vnni") for flag in flags)
    return found + f", {'with' if has_vnni else 'without'} VNNI" * bool(flags)

"""What this process holds and has held at most, in bytes, by the kernel's own count (Linux)."""

from pathlib import Path


def present_bytes() -> int:
    return _status("VmRSS")


def peak_bytes() -> int:
    """Since the process's image was loaded: unlike `ru_maxrss`, nothing of the parent's is in it."""
    return _status("VmHWM")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}; the bench measures memory on Linux only")

"""What one child in the sandbox may use."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """`wall_s` is the child's whole life, `cpu_s` and `memory_bytes` (address space) hold for each of its processes.

    `output_bytes` is the longest reply, `scratch_bytes` all that lies in `/tmp`. `processes` counts the child itself.
    """

    wall_s: float = 30.0
    cpu_s: float = 20.0
    memory_bytes: int = 1024 * MIB
    output_bytes: int = 4 * MIB
    scratch_bytes: int = 16 * MIB
    processes: int = 16
    open_files: int = 64

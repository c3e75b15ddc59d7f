"""What one child in the sandbox may use."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """`wall_s` is the child's whole life once it has started; `cpu_s` holds for each of its processes.

    `memory_bytes` is the address space of each process, and what all of them hold together. `output_bytes` is the
    longest reply, `scratch_bytes` what fits into `/tmp`, `processes` the processes and threads beside the child itself.
    """

    wall_s: float = 30.0
    cpu_s: float = 20.0
    memory_bytes: int = 1024 * MIB
    output_bytes: int = 4 * MIB
    scratch_bytes: int = 16 * MIB
    processes: int = 16
    open_files: int = 64

"""Walls that a process without bubblewrap puts around itself: Landlock, a filter of system calls, no capabilities.

Runs inside (see `start.py`), standard library only, with the globals `readable`, `writable`, `devices` (paths) and
`filter_hex`. Landlock: https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
import struct

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same number on all machines
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
FILE_RIGHTS = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # file rights by the kernel's version of Landlock; no more since
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(function, *arguments) -> int:
    """A call of C; raises `OSError` where it fails."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    if (result := function(*words)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def enclose(readable: list[str], writable: list[str], devices: list[str], program: bytes) -> None:
    version = call(libc.syscall, CREATE_RULESET, 0, 0, 1)
    everything = (1 << RIGHTS.get(version, 16)) - 1
    fields = [everything] + [3] * (version >= 4) + [3] * (version >= 6)  # files; TCP; abstract sockets and signals
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = call(libc.syscall, CREATE_RULESET, attributes, len(attributes), 0)
    for paths, rights in (
        (readable, EXECUTE | READ_FILE | READ_DIR),
        (devices, READ_FILE | WRITE_FILE),
        (writable, everything & ~EXECUTE),
    ):
        for path in paths:
            if not os.path.exists(path):
                continue
            beneath = os.open(path, os.O_PATH)
            possible = everything if os.path.isdir(path) else everything & FILE_RIGHTS
            call(libc.syscall, ADD_RULE, ruleset, 1, struct.pack("=Qi", rights & possible, beneath), 0)
            os.close(beneath)
    call(libc.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call(libc.syscall, RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    call(libc.capset, struct.pack("=Ii", CAPABILITY_VERSION_3, 0), bytes(24))
    source = ctypes.create_string_buffer(program, len(program))
    listing = struct.pack("@HP", len(program) // 8, ctypes.addressof(source))
    call(libc.prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, listing, 0, 0)


if __name__ == "walls":
    enclose(readable, writable, devices, bytes.fromhex(filter_hex))  # noqa: F821  globals that start.py sets

"""What the sandbox tries against itself, from inside. Each attack is a function whose first line says what it does.

Runs as the program of a child, standard library only. An attack returns `what: attempt`; an attempt that raises
`OSError` or `MemoryError` was blocked. `TARGETS` holds what there is outside to reach, `CALLS` the numbers of system calls.
"""

import ctypes
import errno
import itertools
import os
import resource
import signal
import stat
import time
from collections.abc import Callable
from contextlib import suppress

TARGETS: dict = {}
CALLS: dict[str, int] = {}
STAY_S = 5.0  # how long what nobody ends stays
REFUSED = {errno.EPERM, errno.ENOSYS, errno.EACCES}
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
PTRACE_SEIZE, PR_GET_NO_NEW_PRIVS, IPC_RMID = 0x4206, 39, 0
Attempts = dict[str, Callable[[], object]]

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(name: str, *arguments) -> int:
    """A system call. Raises `OSError` where it was refused; that its arguments are wrong means that it was not.

    So the arguments are such that the call does nothing where nobody refuses it.
    """
    if CALLS[name] < 0:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    result = libc.syscall(
        *(ctypes.c_long(word) if isinstance(word, int) else word for word in (CALLS[name], *arguments))
    )
    if result < 0 and (error := ctypes.get_errno()) in REFUSED:
        raise OSError(error, os.strerror(error))
    return result


def calls(*names: str) -> Attempts:
    return {name: lambda name=name: call(name, 0, 0, 0, 0, 0) for name in names}


def need(allowed: bool, error: int = errno.EPERM) -> None:
    if not allowed:
        raise OSError(error, os.strerror(error))


def read_files() -> Attempts:
    """read a file that everyone may read"""
    return {
        path: lambda path=path: open(path).read(1) for path in (TARGETS["file"], "/etc/passwd", "/proc/self/environ")
    }


def write_files() -> Attempts:
    """write outside its own folder"""
    folders = [TARGETS["folder"], "/", "/usr", "/etc", "/var/tmp", "/dev", "/dev/shm", "/run", "/home"]
    made = [os.path.join(folder, f"oncurve-probe-{os.getpid()}") for folder in folders]

    def make(path: str) -> None:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.unlink(path)

    return {"open": lambda: open(TARGETS["file"], "a").close()} | {path: lambda path=path: make(path) for path in made}


def open_devices() -> Attempts:
    """open a device, or make one"""
    names = ("mem", "kmsg", "kvm", "fuse", "tty", "ptmx", "net/tun", "vda", "sda", "nvme0n1", "nvidia0", "nvidiactl")
    opened = {name: lambda name=name: os.close(os.open(f"/dev/{name}", os.O_RDWR | os.O_NOCTTY)) for name in names}
    return opened | {"mknod": lambda: os.mknod("device", 0o600 | stat.S_IFCHR, os.makedev(1, 1))}


def connect_network() -> Attempts:
    """reach the host's loopback, or any network"""
    import socket

    def tcp() -> None:
        with socket.socket() as client:
            client.settimeout(0.2)
            client.connect(("127.0.0.1", TARGETS["port"]))

    kinds = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6, "netlink": socket.AF_NETLINK, "packets": socket.AF_PACKET}
    kinds["virtual machine"] = socket.AF_VSOCK
    datagrams = {name: lambda kind=kind: socket.socket(kind, socket.SOCK_DGRAM).close() for name, kind in kinds.items()}
    return {"loopback": tcp} | datagrams


def connect_local() -> Attempts:
    """reach a local socket of the host"""
    import socket

    def connect(address: str) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(0.2)
            client.connect(address)

    return {"path": lambda: connect(TARGETS["socket"]), "abstract": lambda: connect("\0" + TARGETS["abstract"])}


def signal_others() -> Attempts:
    """kill a process of the host"""
    return {"kill": lambda: os.kill(TARGETS["victim"], signal.SIGKILL)}


def see_others() -> Attempts:
    """see a process of the host"""
    return {"/proc": lambda: open(f"/proc/{TARGETS['victim']}/cmdline").read()}


def trace() -> Attempts:
    """debug a process, or read its memory"""
    return {
        "ptrace": lambda: call("ptrace", PTRACE_SEIZE, TARGETS["victim"], 0, 0),
        "memory": lambda: call("process_vm_readv", TARGETS["victim"], 0, 0, 0, 0, 0),
    }


def make_namespaces() -> Attempts:
    """make or enter a namespace"""

    def clone(flags: int) -> None:
        if call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0) == 0:
            os._exit(0)

    return {
        "unshare user": lambda: call("unshare", CLONE_NEWUSER),
        "unshare mounts": lambda: call("unshare", CLONE_NEWNS),
        "clone user": lambda: clone(CLONE_NEWUSER),
        "clone processes": lambda: clone(CLONE_NEWPID),
        "clone network": lambda: clone(CLONE_NEWNET),
        "setns": lambda: call("setns", 0, 0),
    }


def mount() -> Attempts:
    """mount something, or change the root"""
    return calls("mount", "umount2", "pivot_root", "chroot", "fsopen", "open_tree", "move_mount", "mount_setattr")


def gain_rights() -> Attempts:
    """gain rights: root, capability, setuid"""
    held = (ctypes.c_uint32 * 6)()
    return {
        "setuid": lambda: os.setuid(0) if os.getuid() else need(False),  # as root, it is the capabilities that count
        "setgroups": lambda: os.setgroups([0]),
        "nice": lambda: os.nice(-1),
        "capability": lambda: need(
            libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), held) == 0 and any(held[i] for i in (0, 1, 3, 4))
        ),
        "setuid program": lambda: need(libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0),
    }


def enter_kernel() -> Attempts:
    """enter risky parts of the kernel"""
    too_many = 1 << 20  # segments: no image is taken, and none is given up
    return calls("bpf", "perf_event_open", "io_uring_setup", "userfaultfd", "init_module", "open_by_handle_at") | {
        "kexec_load": lambda: call("kexec_load", 0, too_many, 0, 0)
    }


def use_keys() -> Attempts:
    """use the kernel's keyrings"""
    return {
        "keyctl": lambda: call("keyctl", 0, -3, 0),
        "add_key": lambda: call("add_key", b"user", b"oncurve-probe", b"x", 1, -2),
    }


def hide_memory() -> Attempts:
    """hold memory that no limit counts"""
    kinds = {"shm": (0, 4096, 0o600), "msg": (0, 0o600), "sem": (0, 1, 0o600)}

    def segment(kind: str) -> None:
        made = call(f"{kind}get", *kinds[kind])
        call(f"{kind}ctl", made, *([0] if kind == "sem" else []), IPC_RMID, 0)

    segments = {f"{kind}get": lambda kind=kind: segment(kind) for kind in kinds}
    return segments | {"memfd_create": lambda: os.close(call("memfd_create", b"x", 0))}


def read_environment() -> Attempts:
    """inherit an environment or an open file"""

    def leaked(descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        need(not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)), errno.EBADF)

    numbers = range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    files = {f"descriptor {number}": lambda number=number: leaked(number) for number in numbers}
    return {"environment": lambda: need(bool(os.environ.keys() - set(TARGETS["known"])), errno.ENOENT)} | files


def fork_bomb() -> Attempts:
    """start processes without end"""

    def fork() -> None:
        started = []
        try:
            for _ in range(TARGETS["processes"] + 8):
                if (process := os.fork()) == 0:
                    signal.pause()
                    os._exit(0)
                started.append(process)
        finally:
            for process in started:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)

    return {"fork": fork}


def take_memory() -> Attempts:
    """take twice its memory"""
    return {"allocate": lambda: bytearray(2 * TARGETS["memory_bytes"])}


def fill_disk() -> Attempts:
    """fill the disk, by one file or many"""

    def fill(file_bytes: int) -> None:
        left, names = 2 * TARGETS["scratch_bytes"], []
        try:
            for name in map(str, itertools.count()):
                names.append(name)
                with open(name, "wb", buffering=0) as file:
                    for _ in range(0, file_bytes, 1 << 18):
                        left -= file.write(bytes(1 << 18))
                if left <= 0:
                    return
        finally:
            for name in names:
                os.unlink(name)

    return {"one": lambda: fill(2 * TARGETS["scratch_bytes"]), "many": lambda: fill(1 << 20)}


ATTACKS = {
    attack.__name__: attack
    for attack in (
        *(read_files, write_files, open_devices, connect_network, connect_local, see_others, signal_others, trace),
        *(make_namespaces, mount, gain_rights, enter_kernel, use_keys, hide_memory, read_environment),
        *(fork_bomb, take_memory, fill_disk),
    )
}


def take_memory_together() -> None:
    """take too much memory by many processes"""
    for _ in range(3):
        os.fork()
    held = bytearray(TARGETS["memory_bytes"] // 3)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(STAY_S)
    del held


def write_without_end() -> None:
    """answer without end"""
    while True:
        for descriptor in range(3, 10):
            with suppress(OSError):
                os.write(descriptor, b" " * 65536)


def stay() -> None:
    """outlive its deadline, forked and deaf"""
    for _ in range(2):
        os.fork()
        with suppress(OSError):
            os.setsid()
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
    time.sleep(STAY_S)


ENDLESS = {"memory": take_memory_together, "output": write_without_end, "timeout": stay}  # by what must end them


def answer(request: dict) -> dict:
    TARGETS.update(request["targets"])
    CALLS.update(request["calls"])
    if endless := ENDLESS.get(request["attack"]):
        endless()
        os._exit(0)
    worked, errors = [], set()
    for what, attempt in ATTACKS[request["attack"]]().items():
        try:
            attempt()
            worked.append(what)
        except MemoryError:
            errors.add("out of memory")
        except OSError as error:
            errors.add(errno.errorcode.get(error.errno, str(error)))
    return {"worked": worked, "errors": sorted(errors)}

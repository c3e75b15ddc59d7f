"""The system calls that a child in the sandbox can't make, as a BPF program."""

import errno
import socket
from functools import cache
from struct import pack
from tempfile import TemporaryFile
from types import ModuleType

from oncurve.errors import SandboxError

DENIED = """
    ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd
    keyctl add_key request_key
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register fanotify_init
    mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree move_mount mount_setattr
    unshare setns
    kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff
    syslog acct quotactl quotactl_fd settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname
    iopl ioperm modify_ldt vhangup nfsservctl lookup_dcookie personality
    open_by_handle_at name_to_handle_at
    shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
    mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
    memfd_create memfd_secret
    move_pages migrate_pages mbind set_mempolicy set_mempolicy_home_node
"""
DENIED_WITHOUT_NAMESPACES = "setsid setpgid socket connect sendmsg sendmmsg"  # only its group and paths hold it there
NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)  # CLONE_NEW* of clone
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # input put into a terminal
FIRST_UNKNOWN = 463  # calls from Linux 6.11 on; from 424 on all machines number them alike


@cache
def program(namespaces: bool = True) -> bytes:
    """The filter as `struct sock_filter` records, for this machine's own system calls.

    What is denied fails with EPERM. Calls newer than this table fail as if they weren't there, and those of other ABIs
    (x32, 32 bit) do so or kill. Without `namespaces`, leaving the process group and reaching local sockets is denied as well.
    """
    seccomp = _library()
    calls = seccomp.SyscallFilter(seccomp.ALLOW)
    denied = seccomp.ERRNO(errno.EPERM)
    for name in (DENIED if namespaces else DENIED + DENIED_WITHOUT_NAMESPACES).split():
        if number(name) >= 0:
            calls.add_rule(denied, number(name))
    for flag in NAMESPACES:
        calls.add_rule(denied, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    calls.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")  # its flags lie in memory; libc falls back to clone
    if namespaces:
        calls.add_rule(seccomp.ERRNO(errno.EAFNOSUPPORT), "socket", seccomp.Arg(0, seccomp.NE, socket.AF_UNIX))
    else:
        calls.add_rule(denied, "sendto", seccomp.Arg(4, seccomp.NE, 0))
    for request in (TIOCSTI, TIOCLINUX):
        calls.add_rule(denied, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, request))
    with TemporaryFile() as file:
        calls.export_bpf(file)
        file.seek(0)
        known = file.read()
    unknown = [(0x20, 0, 0, 0), (0x35, 0, 1, FIRST_UNKNOWN), (0x06, 0, 0, seccomp.ERRNO(errno.ENOSYS))]
    return b"".join(pack("=HBBI", *instruction) for instruction in unknown) + known  # load, compare, return


def number(name: str) -> int:
    """The number of a system call on this machine; below 0 where it has none, or libseccomp doesn't know it."""
    return _library().resolve_syscall(_library().Arch.NATIVE, name)


def _library() -> ModuleType:
    try:
        import pyseccomp
    except (ImportError, RuntimeError) as error:  # the second where the library of C is missing
        raise SandboxError(
            f"the sandbox needs libseccomp (apt-get install libseccomp2) and pyseccomp: {error}"
        ) from None
    return pyseccomp

"""The system calls that a child in the sandbox can't make, as a BPF program."""

import errno
import os
from functools import cache

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
""".split()
NAMESPACES = (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)  # CLONE_NEW*
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # input put into a terminal


@cache
def program() -> bytes:
    """The filter as `struct sock_filter` records, for this machine's own system calls; those of other ABIs kill."""
    import pyseccomp as seccomp

    calls = seccomp.SyscallFilter(seccomp.ALLOW)
    deny = seccomp.ERRNO(errno.EPERM)
    for name in DENIED:
        try:
            number = seccomp.resolve_syscall(seccomp.Arch.NATIVE, name)
        except ValueError:  # libseccomp is older than the call
            continue
        if number >= 0:
            calls.add_rule(deny, number)
    for flag in NAMESPACES:
        calls.add_rule(deny, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    calls.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")  # its flags lie in memory; libc falls back to clone
    calls.add_rule(seccomp.ERRNO(errno.EAFNOSUPPORT), "socket", seccomp.Arg(0, seccomp.NE, 1))  # all but AF_UNIX
    for request in (TIOCSTI, TIOCLINUX):
        calls.add_rule(deny, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, request))
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source:
        with os.fdopen(writing, "wb") as target:
            calls.export_bpf(target)
        return source.read()

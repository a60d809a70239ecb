"""Guards that keep a process from reaching anything outside: namespaces, a filter of system calls, an audit hook.

Everything here acts on the process that calls it, cannot be undone by it, and goes through the C library by ctypes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flexmdm.sandbox.limits import Limits, impose

_NOBODY = 65534
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY


@dataclass(frozen=True)
class Guards:
    """The guards that are in force; the docstring of the package says what each adds."""

    namespaces: bool
    seccomp: bool

    @property
    def audit(self) -> bool:
        """Return whether the audit hook stands in for a missing filter of system calls."""
        return not self.seccomp

    def __str__(self) -> str:
        """Name the guards, and say what the lack of namespaces means.

        >>> print(Guards(namespaces=False, seccomp=True))
        seccomp; without namespaces, programs can read files and write none
        """
        names = [name for name in ("namespaces", "seccomp", "audit") if getattr(self, name)]
        lacking = "" if self.namespaces else "; without namespaces, programs can read files and write none"
        return " + ".join(names) + lacking


def find_guards(namespaces: bool = True, seccomp: bool = True) -> Guards:
    """Return those of the wanted guards that work here, each tried out in a child process."""
    if namespaces:
        _package_folders()  # found once, before the child that tries looks for them too
    isolated = namespaces and _works(lambda: (enter_namespaces(Path.cwd()), mount_scratch()))
    return Guards(isolated, seccomp and _works(lambda: confine(Limits(), Guards(False, True))))


def confine(limits: Limits, guards: Guards) -> None:
    """Take privileges away, impose the limits and refuse system calls: the last step before a program runs."""
    _drop_privileges()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_DUMPABLE, 0)  # no other process of this user may look into this one
    impose(limits)
    if guards.seccomp:
        _filter_system_calls(writing=guards.namespaces)
    else:
        sys.addaudithook(_audit(writing=guards.namespaces))


def become_subreaper() -> None:
    """Become the parent of all descendants whose parent has ended, so that none is lost."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _works(step: Callable[[], Any]) -> bool:
    """Return whether a step succeeds and leaves a Python that can still import modules."""
    if sys.platform != "linux":
        return False
    pid = fork(lambda: (step(), __import__("colorsys")))  # a module that nothing else has loaded
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def fork(step: Callable[[], Any]) -> int:
    """Run a step in a child process, which ends with it, by code 1 if it raises; return the child's number."""
    pid = os.fork()
    if pid == 0:
        try:
            step()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


# The C library --------------------------------------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 1, 4, 8
_PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 22, 36, 38


def _call(name: str, *arguments: Any) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _call("prctl", option, ctypes.c_ulong(value), 0, 0, 0)


# Privileges -----------------------------------------------------------------------------------------------------------

_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION = 0x20080522


def _drop_privileges() -> None:
    """Change from root to nobody and drop all capabilities, but for reading where nobody cannot read the library."""
    keep = 0
    if os.geteuid() == 0:
        _prctl(_PR_SET_KEEPCAPS, 1)
        with suppress(OSError):  # a container may have no such user; its root has few rights without capabilities
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
        keep = 0 if os.access(os.__file__, os.R_OK) else 1 << _CAP_DAC_READ_SEARCH
    if sys.platform == "linux":
        header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
        _call("capset", header, struct.pack("6I", keep, keep, 0, 0, 0, 0))
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)


# Namespaces -----------------------------------------------------------------------------------------------------------

_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x20000, 0x8000000, 0x10000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_DETACH = 2
_SYS_MOUNT_SETATTR = 442  # the same on every architecture
_AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = -100, 0x8000, 1
_PACKAGE_FOLDER_NAMES = ("site-packages", "dist-packages", "_bundled")  # in the last, ensurepip has its pip
_SCRATCH = "/scratch"
_SCRATCH_OPTIONS = b"size=16m,nr_inodes=1024,mode=777"


def enter_namespaces(folder: Path) -> None:
    """Move this process where it sees nothing but the standard library, read-only, and has no network.

    Where packages are installed beside the library, there are empty folders instead. What is mounted in ``folder``, an
    empty one, is seen by this process and its children only.
    """
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _NEW_MOUNTS | _NEW_IPC | _NEW_NETWORK | (_NEW_USER if user else 0))
    if user:
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(line)
    _mount(None, Path("/"), None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV)
    for path in _libraries():
        inside = folder / path.relative_to("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            inside.symlink_to(path.readlink())
        else:
            inside.mkdir(exist_ok=True)
            _mount(str(path), inside, None, _MS_BIND | _MS_REC)
    for path in _package_folders():
        _mount("tmpfs", folder / path[1:], "tmpfs", _MS_NOSUID | _MS_NODEV)
    (folder / _SCRATCH[1:]).mkdir()
    os.chdir(folder)
    read_only = struct.pack("4Q", _ATTR_RDONLY, 0, 0, 0)
    _call("syscall", _SYS_MOUNT_SETATTR, _AT_FDCWD, b".", _AT_RECURSIVE, read_only, ctypes.c_size_t(len(read_only)))
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)
    os.chdir("/")


def mount_scratch() -> Path:
    """Mount an empty directory in memory, instead of the last one; only after `enter_namespaces`."""
    _libc.umount2(_SCRATCH.encode(), _DETACH)  # there is none at first
    _mount("tmpfs", Path(_SCRATCH), "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, _SCRATCH_OPTIONS)
    return Path(_SCRATCH)


def _libraries() -> list[Path]:
    """Return the folders that imports read: the standard library and the shared libraries that its extensions need.

    They are those of the interpreter, as a virtual environment has only packages. Where shared libraries have a folder
    for their architecture, as on Debian, nothing else of the folder above is needed.
    """
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    stdlib = {Path(sysconfig.get_path(name, vars=base)).resolve() for name in ("stdlib", "platstdlib")}
    system = {Path(name) for name in ("/lib", "/lib64", "/usr/lib", "/usr/lib64")}
    architecture = sysconfig.get_config_var("MULTIARCH") or ""
    narrow = {path: path / architecture for path in system if not path.is_symlink() and (path / architecture).is_dir()}
    shared = {narrow.get(path, path) for path in system | {Path(sys.base_prefix, "lib")} if path.exists()}
    folders = sorted(shared | stdlib, key=lambda path: len(path.parts))
    return [path for path in folders if not any(path.is_relative_to(other) for other in folders if other != path)]


@cache
def _package_folders() -> list[str]:
    """Return the folders of installed or bundled packages in those of `_libraries`.

    Links are left out: what they lead to is a folder that is found by its own name, or is not mounted.
    """
    found: list[str] = []
    pending = [str(path) for path in _libraries() if not path.is_symlink()]
    while pending:
        with suppress(PermissionError), os.scandir(pending.pop()) as entries:  # os.walk takes twice as long
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    (found if entry.name in _PACKAGE_FOLDER_NAMES else pending).append(entry.path)
    return found


def _mount(source: str | None, target: Path, kind: str | None, flags: int, options: bytes | None = None) -> None:
    names = [name.encode() if name is not None else None for name in (source, str(target), kind)]
    _call("mount", *names, ctypes.c_ulong(flags), options)


# The filter of system calls -------------------------------------------------------------------------------------------

# name: number on x86-64, on ARM64; "-" where it does not exist. What is missing here fails with "not permitted".
_READING_CALLS = """
read 0 63, write 1 64, close 3 57, stat 4 -, fstat 5 80, lstat 6 -, poll 7 -, lseek 8 62, mmap 9 222, mprotect 10 226,
munmap 11 215, brk 12 214, rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, pread64 17 67, readv 19 65,
writev 20 66, access 21 -, pipe 22 -, select 23 -, sched_yield 24 124, mremap 25 216, msync 26 227, madvise 28 233,
dup 32 23, dup2 33 -, pause 34 -, nanosleep 35 101, getitimer 36 102, alarm 37 -, setitimer 38 103, getpid 39 172,
sendfile 40 71, exit 60 93, uname 63 160, fsync 74 82, fdatasync 75 83, getcwd 79 17, chdir 80 49, fchdir 81 50,
readlink 89 -, umask 95 166, gettimeofday 96 169, getrlimit 97 163, getrusage 98 165, sysinfo 99 179, times 100 153,
getuid 102 174, getgid 104 176, geteuid 107 175, getegid 108 177, getppid 110 173, getpgrp 111 -, getgroups 115 158,
getpgid 121 155, getsid 124 156, rt_sigpending 127 136, rt_sigtimedwait 128 137, rt_sigsuspend 130 133,
sigaltstack 131 132, statfs 137 43, fstatfs 138 44, arch_prctl 158 -, gettid 186 178, time 201 -, futex 202 98,
sched_getaffinity 204 123, getdents64 217 61, set_tid_address 218 96, restart_syscall 219 128, clock_gettime 228 113,
clock_getres 229 114, clock_nanosleep 230 115, exit_group 231 94, newfstatat 262 79, readlinkat 267 78,
faccessat 269 48, pselect6 270 72, ppoll 271 73, set_robust_list 273 99, dup3 292 24, pipe2 293 59, getcpu 309 168,
getrandom 318 278, membarrier 324 283, statx 332 291, rseq 334 293, faccessat2 439 439
"""
_WRITING_CALLS = """
pwrite64 18 68, truncate 76 45, ftruncate 77 46, rename 82 -, mkdir 83 -, rmdir 84 -, creat 85 -, link 86 -,
unlink 87 -, symlink 88 -, chmod 90 -, fchmod 91 52, mkdirat 258 34, unlinkat 263 35, renameat 264 38, linkat 265 37,
symlinkat 266 36, fchmodat 268 53, utimensat 280 88, renameat2 316 276
"""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH

_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_FIELD_NUMBER, _FIELD_ARCHITECTURE, _FIELD_ARGUMENTS = 0, 4, 16
_FCNTL_COMMANDS = (0, 1, 2, 3, 4, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def _filter_system_calls(writing: bool) -> None:
    if platform.machine() not in _ARCHITECTURES or sys.maxsize < 2**32:
        raise OSError(f"there is no filter of system calls for {platform.machine()}")
    instructions = b"".join(struct.pack("HBBI", *one) for one in _instructions(writing))
    program = _Filter(len(instructions) // 8, instructions)
    _call("prctl", _PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(program), 0, 0)


def _instructions(writing: bool) -> list[tuple[int, int, int, int]]:
    """Return the filter, as (code, jump if true, jump if false, operand); whatever it does not name is refused."""
    column, architecture = _ARCHITECTURES[platform.machine()]
    allow, refuse = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)

    def any_of(values: Iterable[int]) -> list[tuple[int, int, int, int]]:
        return [line for value in values for line in ((_IF_EQUAL, 0, 1, value), allow)]

    read_only = [(_IF_ANY_BIT, 0, 1, 0 if writing else _WRITING), refuse, allow]
    checked = (  # call, index of the argument that is checked, and how
        ("kill 62 129", 0, any_of([os.getpid()])),
        ("tgkill 234 131", 0, any_of([os.getpid()])),
        ("prlimit64 302 261", 0, any_of([0])),
        ("fcntl 72 25", 1, any_of(_FCNTL_COMMANDS)),
        ("open 2 -", 1, read_only),
        ("openat 257 56", 2, read_only),
    )
    lines = [(_LOAD, 0, 0, _FIELD_ARCHITECTURE), (_IF_EQUAL, 1, 0, architecture), refuse, (_LOAD, 0, 0, _FIELD_NUMBER)]
    lines += any_of(_numbers(_READING_CALLS + ("," + _WRITING_CALLS if writing else ""), column))
    for call, index, check in checked:
        for number in _numbers(call, column):
            body = [(_LOAD, 0, 0, _FIELD_ARGUMENTS + 8 * index), *check, refuse]
            lines += [(_IF_EQUAL, 0, len(body), number), *body]
    return [*lines, refuse]


def _numbers(table: str, column: int) -> list[int]:
    found = [entry.split()[1 + column] for entry in table.split(",")]
    return [int(number) for number in found if number != "-"]


# The audit hook -------------------------------------------------------------------------------------------------------

_REFUSED_EVENTS = (
    "ctypes.", "fcntl.", "ftplib.", "gc.", "http.", "imaplib.", "mmap.", "nntplib.", "os.exec", "os.fork",
    "os.kill", "os.posix_spawn", "os.putenv", "os.setxattr", "os.removexattr", "os.spawn", "os.startfile", "os.system",
    "poplib.", "pty.", "resource.prlimit", "signal.pthread_kill", "smtplib.", "socket.", "subprocess.", "syslog.",
    "telnetlib.", "urllib.", "webbrowser.", "winreg.", "_posixsubprocess.", "_thread.start",
)  # fmt: skip
_REFUSED_WRITES = (
    "os.chmod", "os.chown", "os.chflags", "os.lockf", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir",
    "os.symlink", "os.truncate", "os.utime", "shutil.", "tempfile.",
)  # fmt: skip
_REFUSED_IMPORTS = frozenset({"_ctypes", "ctypes", "_posixsubprocess", "_testcapi", "_testinternalcapi", "_socket"})


def _audit(writing: bool) -> Callable[[str, tuple[Any, ...]], None]:
    refused = _REFUSED_EVENTS if writing else _REFUSED_EVENTS + _REFUSED_WRITES

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(refused):
            raise PermissionError(errno.EPERM, f"{event} is not permitted here")
        if event == "open" and not writing:
            path, mode, flags = arguments
            if flags & _WRITING or set(mode or "r") & set("wax+"):
                raise PermissionError(errno.EPERM, f"writing {path!r} is not permitted here")
        if event == "import" and arguments[0] in _REFUSED_IMPORTS:
            raise PermissionError(errno.EPERM, f"the module {arguments[0]} is not permitted here")

    return hook

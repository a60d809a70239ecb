"""Limits on what a program may use."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass

# The kernel counts whole clock ticks against RLIMIT_CPU, and has ended programs after 0.8 of it.
_CPU_MARGIN = 1.3


@dataclass(frozen=True)
class Limits:
    """Limits of one program; its tests have the same limits again.

    CPU time is what decides, so that a verdict does not depend on how busy the machine is: 3 s, the time that the
    HumanEval harness gives. Wall time only ends programs that sleep or wait. A program has one process and one thread.
    """

    cpu_seconds: float = 3
    wall_seconds: float = 9.0  # of program and tests together
    memory_bytes: int = 512 << 20  # address space; an interpreter takes 40 MiB of it
    file_bytes: int = 1 << 20  # of each file that the program writes
    open_files: int = 32
    output_bytes: int = 1 << 16  # how much of the printed output is kept

    def __post_init__(self) -> None:
        wrong = [name for name, value in vars(self).items() if value <= 0]
        if wrong:
            raise ValueError(f"a limit must be above 0, got {wrong[0]} = {getattr(self, wrong[0])}")


def impose(limits: Limits) -> None:
    """Put this process under the limits that the kernel counts; it cannot raise them again.

    The kernel ends a program only after the CPU time that it was promised, by SIGXCPU, or by SIGKILL a second later.
    """
    cpu_seconds = math.ceil(_CPU_MARGIN * limits.cpu_seconds)
    for kind, soft, hard in (
        (resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + 1),
        (resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NPROC, 0, 0),  # what runs goes on, but nothing new can start
    ):
        most = resource.getrlimit(kind)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))

"""How much a program may use."""

from __future__ import annotations

import resource
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one program may use; its tests get as much again.

    CPU time is what decides, so that a verdict does not depend on how busy the machine is: 3 s, the time that the
    HumanEval harness gives. Wall time only ends programs that sleep or wait. A program has one process and one thread.

    Attributes:
        cpu_seconds: whole seconds.
        wall_seconds: of program and tests together.
        memory_bytes: address space; an interpreter takes 40 MiB of it.
        file_bytes: size of a file that it writes.
        open_files: descriptors.
        output_bytes: of what it prints, how much is kept.
    """

    cpu_seconds: int = 3
    wall_seconds: float = 9.0
    memory_bytes: int = 512 << 20
    file_bytes: int = 1 << 20
    open_files: int = 32
    output_bytes: int = 1 << 16

    def __post_init__(self) -> None:
        wrong = [name for name, value in vars(self).items() if value <= 0]
        if wrong:
            raise ValueError(f"a limit must be above 0, got {wrong[0]} = {getattr(self, wrong[0])}")


def impose(limits: Limits) -> None:
    """Put this process under the limits that the kernel counts. It cannot raise them again."""
    for kind, most in (
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),  # what runs goes on, but nothing new can start
    ):
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(kind, (most, most))

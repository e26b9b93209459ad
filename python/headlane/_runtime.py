"""The instruction set and the number of threads."""

from __future__ import annotations

from . import _core


def isa() -> str:
    """The instruction set in use: the fastest one, unless HEADLANE_ISA or set_isa() named another."""
    return _core.isa()


def isa_extension() -> str:
    """The extension of isa() that products of 8-bit integers and bfloat16 use, if this CPU has it.

    "vnni", "vnni+bf16", "dotprod" or "". It changes no bit. "bf16" is not used on Intel's CPUs with
    AVX512-FP16, where fmas are faster, unless the environment variable HEADLANE_EXTENSIONS is "all"; that
    limits it to "vnni", too, or turns it off ("none"), if it is set when the library is first used or
    set_isa() is called.
    """
    return _core.isa_extension()


def available_isas() -> list[str]:
    """The instruction sets that are built in and supported by this CPU, fastest first."""
    return _core.available_isas()


def set_isa(name: str) -> None:
    """Selects an instruction set for the whole process. No bit of any result changes.

    Must not be called while a thread computes.

    Args:
        name: One of available_isas().
    """
    _core.set_isa(name)


def num_threads() -> int:
    """The maximum number of threads of a call that does not set its own.

    It is that of set_num_threads(), else HEADLANE_NUM_THREADS, else OpenMP's setting.
    """
    return _core.num_threads()


def set_num_threads(threads: int) -> None:
    """Sets the maximum number of threads for the whole process; 0 restores the environment's
    setting.
    """
    _core.set_num_threads(threads)

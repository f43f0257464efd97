"""The option ``--profile FILE``: reads a profile for the kernels of a module.

Guarantees: a file that is no profile, or that matches no kernel, ends the command with the exit code for bad input. A
kernel whose code changed since it was measured is named in a warning and gets no profile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .outcome import BAD_INPUT, CommandError, warn

if TYPE_CHECKING:
    from ..analysis.profile import Profile
    from ..ptx import Kernel

__all__ = ["PROFILE_HELP", "load_profile"]

PROFILE_HELP = "execution counts of blocks and branches, measured by `emulate --profile`"


def load_profile(path: str, kernels: Iterable[Kernel]) -> Profile:
    """The profile in the file ``path``, with warnings for ``kernels`` that it does not match. Raises `OSError`,
    `CommandError`."""
    from ..analysis.profile import Profile, ProfileError

    try:
        profile = Profile.load(path)
    except ProfileError as error:
        raise CommandError(BAD_INPUT, f"ptxmotion: error: {error}") from None
    defined = [kernel for kernel in kernels if not kernel.is_declaration]
    problems = {kernel.name: profile.match(kernel) for kernel in defined}
    if defined and all(problems.values()):
        measured = [text for name, text in problems.items() if name in profile.by_name]
        text = (measured or list(problems.values()))[0]
        message = f"ptxmotion: error: {text}, and no other kernel here matches either: measure again"
        raise CommandError(BAD_INPUT, message)
    for name, text in problems.items():
        if text and name in profile.by_name:
            warn(f"{text}: the profile of this kernel is ignored")
    return profile

"""Reading a profile (`--profile FILE`) for the kernels of a module, and saying what it does not fit.

Guarantees: a file that is no profile, or that fits no kernel at all, ends the verb with the exit code for bad input; a
kernel that was measured with other code is named in a warning, and goes on without.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .outcome import BAD_INPUT, CommandError, warn

if TYPE_CHECKING:
    from ..analysis.profile import Profile
    from ..ptx import Kernel

__all__ = ["PROFILE_HELP", "load_profile"]

PROFILE_HELP = "how often blocks and branches were executed, as `emulate --profile` has measured it"


def load_profile(path: str, kernels: Iterable[Kernel]) -> Profile:
    """The profile in the file ``path``, matched with ``kernels``. Raises `OSError`, `CommandError`."""
    from ..analysis.profile import Profile, ProfileError

    try:
        profile = Profile.load(path)
    except ProfileError as error:
        raise CommandError(BAD_INPUT, f"ptxmotion: error: {error}") from None
    named = [kernel for kernel in kernels if not kernel.is_declaration]
    problems = {kernel.name: profile.match(kernel) for kernel in named}
    if named and all(problems.values()):
        known = [text for name, text in problems.items() if name in profile.by_name]
        text = (known or list(problems.values()))[0]
        raise CommandError(BAD_INPUT, f"ptxmotion: error: {text}, and it fits no other kernel here: measure again")
    for name, text in problems.items():
        if text and name in profile.by_name:
            warn(f"{text}: it is taken as not measured")
    return profile

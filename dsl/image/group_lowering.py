"""The kernel of a group of operators: overlapped tiles in shared memory, and operators that are computed where they are
read.

An index outside of an intermediate image is exchanged for the one that the boundary of its reader gives, and the
operator is computed there. So every operator is computed at pixels of its image only, as if the image were stored. The
exchanged pixel is in the tile, too, if the boundary gives one near the same edge (`groups.is_near`). Otherwise the
operator is computed again from images in global memory.

A block whose tiles are inside of all images runs a version of the code without any check.

Sources: Qiao, thesis, §3.6.3 (index exchange); Jangda, Guha: Model-Based Warp Overlapped Tiling, §2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import types as t
from ..functions import Param
from ..host_language import fill as _fill  # noqa: F401
from ..kernel import kernel_from_text
from .borders import Checks
from .groups import Group, Plan, Reach, is_near
from .lowered import Launch, Lowered, Options
from .lowering import Arguments, checks_of, load_function, region
from .operator_body import PixelFunction
from .operators import Access, Image, Node

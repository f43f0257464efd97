"""Speedups that the text of the thesis states for its methods, by program. The bars of its figures are not included.

Source: J. Fukuhara, *Compiler Optimization for GPU Based on Code Motion*, 2023: §4.2.3 (experiment A, figure 4.7) and
§4.3.4 (figures 4.14 to 4.17, 4.19, 4.20); table 5.1. A number is the time of nvcc's -O3 divided by the time of the
method: "improved the efficiency by 8 %" is taken as 1.08. If the text states a tendency instead of a number, the entry
is a word:

    gain, loss     faster or slower than nvcc's -O3, without a number
    none           applied, or tried, without a gain
    no change      the method found nothing to transform

Programs that the text does not mention have no entry. Environment 1 is a GeForce GTX TITAN Black with CUDA 5.0,
environment 2 a TITAN RTX with CUDA 11.1. The geometric means are over all programs of both suites; only some of these
are in the suites here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["FIGURES", "FUSION", "Experiment", "Stated"]

#: By benchmark and variant: a speedup, or one of the words above.
Stated: TypeAlias = Mapping[str, Mapping[str, float | str]]


@dataclass(frozen=True)
class Experiment:
    """Figures of one experiment, which differ in their environment. ``stated[figure]`` is what the text states.

    ``programs`` maps each benchmark here to its name in the thesis. ``means`` are geometric means by figure and method,
    over the programs that ``means_of`` describes. ``original`` maps a benchmark with a changed access pattern to the
    one with the original pattern. For the changed pattern, the numbers of the thesis are relative to -O3 of the
    original pattern, and the entry ``O3`` is the number for -O3 of the changed pattern.
    """

    title: str
    methods: tuple[str, ...]
    programs: Mapping[str, str]
    stated: Mapping[str, Stated]
    means: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    means_of: str = ""
    original: Mapping[str, str] = field(default_factory=dict[str, str])


def _all(value: float | str, *methods: str) -> dict[str, float | str]:
    return dict.fromkeys(methods, value)


_CODE_MOTION = ("lcm", "scm", "spre", "sscm")
_QUESTIONS = ("srqp", "esrqp", "ssrqp_s", "ssrqp")
_NO_CHANGE = _all("no change", *_QUESTIONS)
_MEANS = {
    "1": {"srqp": 1.011, "esrqp": 1.011, "ssrqp_s": 1.026, "ssrqp": 1.034},
    "2": {"srqp": 1.02, "esrqp": 1.02, "ssrqp_s": 1.032, "ssrqp": 1.032},
}

FIGURES: tuple[Experiment, ...] = (
    Experiment(
        "Code motion (figure 4.7, environment 1)",
        _CODE_MOTION,
        {
            "treelogy/barneshut": "barnshut",
            "treelogy/knearestneighbor": "knn",
            "rodinia/cfd": "cfd",
            "cuda_samples/FDTD3d": "FDTD3D",
            "cuda_samples/eigenvalues": "eigenvalues (two kernels, each by itself)",
            "parboil/histo": "histo",
            "parboil/mri-q": "mri-q",
        },
        {
            "4.7": {
                "treelogy/barneshut": {"lcm": "no change", "scm": "less than sscm", "spre": "as sscm", "sscm": "gain"},
                "treelogy/knearestneighbor": _all(1.05, "spre", "sscm"),
                "rodinia/cfd": _all(1.08, *_CODE_MOTION),
                "cuda_samples/FDTD3d": {
                    **_all("no change", "lcm", "scm"),
                    "spre": "less than the others",
                    "sscm": 1.0807,
                },
                # These are the values for MultiIntervals. No method improves bisectKernelLarge.
                "cuda_samples/eigenvalues": {"spre": "loss", "sscm": "gain; none of bisectKernelLarge"},
                "parboil/histo": {"lcm": "loss", **_all("gain", "scm", "spre", "sscm")},
                "parboil/mri-q": _all("none", *_CODE_MOTION),
            }
        },
    ),
    Experiment(
        "Scalar replacement, Rodinia (figures 4.14 and 4.15)",
        _QUESTIONS,
        {
            "rodinia/b+tree": "b+tree",
            "rodinia/bfs": "bfs",
            "rodinia/cfd": "cfd",
            "rodinia/gaussian": "gaussian",
            "rodinia/hotspot": "hotspot",
            "rodinia/huffman": "huffman",
            "rodinia/kmeans": "kmeans",
            "rodinia/lavaMD": "lavaMD",
            "rodinia/lud": "lud",
            "rodinia/nw": "nw",
            "rodinia/particlefilter": "particlefilter",
            "rodinia/pathfinder": "pathfinder",
            "rodinia/srad_v1": "srad",
            "rodinia/srad_v2": "srad",
        },
        {
            "4.14": {
                "rodinia/b+tree": {**_all(1.21, "srqp", "esrqp"), "ssrqp_s": "less than the others", "ssrqp": 1.22},
                "rodinia/bfs": {**_all("no change", "srqp", "esrqp"), "ssrqp_s": 1.196, "ssrqp": 1.225},
                "rodinia/cfd": _NO_CHANGE,
                "rodinia/gaussian": _NO_CHANGE,
                "rodinia/hotspot": {"ssrqp_s": "loss"},
                "rodinia/huffman": _all(1.07, *_QUESTIONS),
                "rodinia/kmeans": _all("none", *_QUESTIONS),
                "rodinia/lavaMD": {**_all(1.015, "srqp", "esrqp", "ssrqp"), "ssrqp_s": "none"},
                "rodinia/lud": {"ssrqp_s": "loss"},
                "rodinia/nw": _all("none", *_QUESTIONS),
                "rodinia/particlefilter": {"ssrqp_s": "loss"},
                "rodinia/pathfinder": _all("none", *_QUESTIONS),
                "rodinia/srad_v1": {**_all("no change", "srqp", "esrqp", "ssrqp"), "ssrqp_s": "gain"},
                "rodinia/srad_v2": {**_all("no change", "srqp", "esrqp", "ssrqp"), "ssrqp_s": "gain"},
            },
            # The text says that the other programs show almost the same tendency as in environment 1.
            "4.15": {"rodinia/b+tree": {**_all(1.585, "srqp", "esrqp"), "ssrqp_s": 1.849, "ssrqp": 1.88}},
        },
        {"4.14": _MEANS["1"], "4.15": _MEANS["2"]},
        "Rodinia and Treelogy together",
    ),
    Experiment(
        "Scalar replacement, Treelogy (figures 4.16 and 4.17)",
        _QUESTIONS,
        {
            "treelogy/barneshut": "barnshut",
            "treelogy/kmeans": "kmeans",
            "treelogy/knearestneighbor": "knearestneighbor",
        },
        {
            "4.16": {
                "treelogy/barneshut": {**_all("no change", "srqp", "esrqp"), **_all(1.10, "ssrqp_s", "ssrqp")},
                "treelogy/kmeans": {**_all("no change", "srqp", "esrqp"), **_all(1.40, "ssrqp_s", "ssrqp")},
                "treelogy/knearestneighbor": {**_all("no change", "srqp", "esrqp"), **_all(1.03, "ssrqp_s", "ssrqp")},
            },
            "4.17": {
                "treelogy/barneshut": _all("none", *_QUESTIONS),
                "treelogy/kmeans": _all(1.10, "ssrqp_s", "ssrqp"),
                "treelogy/knearestneighbor": _all("none", *_QUESTIONS),
            },
        },
        {"4.16": _MEANS["1"], "4.17": _MEANS["2"]},
        "Rodinia and Treelogy together",
    ),
    Experiment(
        "Scalar replacement with another access pattern (figures 4.19 and 4.20)",
        _QUESTIONS,
        {
            "cuda_samples/SobelFilter": "SobelFilter",
            "cuda_samples/SobelFilter-consecutive": "SobelFilter (mod)",
            "cuda_samples/bilateralFilter": "bilateralFilter",
            "cuda_samples/bilateralFilter-consecutive": "bilateralFilter (mod)",
        },
        {
            "4.19": {
                "cuda_samples/SobelFilter": _NO_CHANGE,
                "cuda_samples/SobelFilter-consecutive": {
                    "O3": 0.98,
                    **_all(1.02, "srqp", "esrqp", "ssrqp"),
                    "ssrqp_s": 0.91,
                },
                "cuda_samples/bilateralFilter": _NO_CHANGE,
                "cuda_samples/bilateralFilter-consecutive": {
                    "O3": 0.95,
                    **_all(1.14, "srqp", "esrqp", "ssrqp"),
                    "ssrqp_s": 1.08,
                },
            },
            "4.20": {
                "cuda_samples/SobelFilter": _NO_CHANGE,
                "cuda_samples/SobelFilter-consecutive": {"O3": "none", **_all("none", *_QUESTIONS)},
                "cuda_samples/bilateralFilter": _NO_CHANGE,
                "cuda_samples/bilateralFilter-consecutive": {
                    "O3": 0.89,
                    **_all(1.03, "srqp", "esrqp", "ssrqp"),
                    "ssrqp_s": "none",
                },
            },
        },
        original={
            "cuda_samples/SobelFilter-consecutive": "cuda_samples/SobelFilter",
            "cuda_samples/bilateralFilter-consecutive": "cuda_samples/bilateralFilter",
        },
    ),
)


def _fusion(kf_trad: float, kfcm: float) -> dict[str, float | str]:
    return {"kf_trad": kf_trad, "kfcm": kfcm}


#: Kernel fusion: launches in a stream on a TITAN RTX with CUDA 11.1 and clang 11, whole programs.
FUSION = Experiment(
    "Kernel fusion (table 5.1)",
    ("kf_trad", "kfcm"),
    {
        "rodinia/bfs": "bfs",
        "rodinia/cfd": "cfd",
        "rodinia/gaussian": "gaussian",
        "rodinia/huffman": "huffman",
        "rodinia/lud": "lud",
        "rodinia/particlefilter": "particlefilter",
        "rodinia/srad_v1": "srad_v1",
        "rodinia/srad_v2": "srad_v2",
        "cuda_samples/eigenvalues": "eigenvalues",
        "cuda_samples/lineOfSight": "lineOfSight",
        "treelogy/barneshut": "barneshut (of GPU Computing Gems)",
    },
    {
        "5.1": {
            "rodinia/bfs": _fusion(0.99, 0.99),
            "rodinia/cfd": _fusion(1.35, 1.48),
            "rodinia/gaussian": _fusion(1.02, 1.02),
            "rodinia/huffman": _fusion(1.00, 1.00),
            "rodinia/lud": _fusion(1.03, 1.04),
            "rodinia/particlefilter": _fusion(1.03, 1.03),
            "rodinia/srad_v1": _fusion(1.06, 1.11),
            "rodinia/srad_v2": _fusion(1.22, 1.22),
            "cuda_samples/eigenvalues": _fusion(1.00, 1.25),
            "cuda_samples/lineOfSight": _fusion(1.00, 1.22),
            "treelogy/barneshut": _fusion(1.16, 1.21),
        }
    },
    {"5.1": {"kf_trad": 1.06, "kfcm": 1.12}},
    "Rodinia, the SDK's samples and GPU Computing Gems together",
)

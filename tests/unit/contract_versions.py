"""What tests of versions read in a contract and in the optimized text."""

import re

from ptxmotion import Policy, optimize
from ptxmotion.contract import Contract, Launch, Version, holds
from ptxmotion.driver import Result
from ptxmotion.transforms.gate.judge import Judge

__all__ = ["HEAD", "allowed", "body", "versions", "with_contract"]

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def with_contract(ptx: str, gate: str = "off", judge: Judge | None = None) -> tuple[Result, Contract]:
    result = optimize(ptx, "O3", Policy(contract=True, gate=gate, judge=judge))
    assert result.contract is not None
    return result, result.contract


def versions(contract: Contract, kernel: str) -> dict[str, Version]:
    return {version.description: version for version in contract.kernels[kernel].versions[:-1]}


def body(text: str, entry: str) -> str:
    return re.split(r"\n\}", text[text.index(f".entry {entry}(") :])[0]


def allowed(version: Version, launch: Launch) -> bool:
    return all(holds(each, launch) for each in version.requires)

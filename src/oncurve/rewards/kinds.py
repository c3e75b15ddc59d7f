"""The verifier and the rules of each kind of task. A kind's module is imported when a task of it is met."""

import importlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from oncurve.config.rewards import KIND_RULES, KindRules
from oncurve.errors import BrokenTruth
from oncurve.types import Task, Verifier


def verifier_of(kind: str, *, allow_unsafe: bool = False) -> Verifier:
    """The verifier of a kind, `oncurve.rewards.<kind>.Verifier`.

    `allow_unsafe` lets code run without the isolation that its rules ask for, which every score then says.
    """
    made = importlib.import_module(f"oncurve.rewards.{kind}").Verifier
    return made(allow_unsafe=allow_unsafe) if kind == "code" else made()


def rules_for(task: Task, rules: KindRules | None) -> KindRules:
    """The rules that a task is graded by: `rules` (None: the kind's defaults) with the task's own options in them.

    Raises `BrokenTruth` where an option is unknown or has a wrong value.
    """
    base = rules or KIND_RULES[task.kind](type=task.kind)
    return _merged(base, json.dumps(task.options, sort_keys=True)) if task.options else base


@lru_cache(maxsize=4096)
def _merged(base: KindRules, options: str) -> KindRules:
    return merged(base, json.loads(options))


def merged(base: KindRules, options: Mapping[str, Any]) -> KindRules:
    """`base` with `options` in it, checked. Raises `BrokenTruth` that names the option."""
    try:
        return type(base).model_validate(base.model_dump() | dict(options))
    except ValidationError as error:
        allowed = ", ".join(name for name in type(base).model_fields if name not in ("type", "floor"))
        faults = "; ".join(_words(fault, allowed) for fault in error.errors(include_url=False))
        raise BrokenTruth(faults) from None


def _words(fault: Any, allowed: str) -> str:
    where = ".".join(["options", *map(str, fault["loc"])])
    if fault["type"] == "extra_forbidden":
        return f"{where}: no such option; allowed are {allowed}"
    return f"{where}: {fault['msg'].removeprefix('Value error, ')}"

"""The verifier and the rules of each kind of task. A kind's module is imported when a task of it is met."""

import importlib
import json
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from oncurve.config.rewards import KindRules, RewardConfig
from oncurve.errors import BrokenTruth, ConfigError
from oncurve.types import Task, Verifier


def verifier_of(kind: str, *, allow_unsafe: bool = False) -> Verifier:
    """The verifier of a kind, `oncurve.rewards.<kind>.Verifier`.

    `allow_unsafe` lets code run without the isolation that its rules ask for, which every score then says.
    """
    made = importlib.import_module(f"oncurve.rewards.{kind}").Verifier
    return made(allow_unsafe=allow_unsafe) if kind == "code" else made()


def rules_for(task: Task, rules: KindRules) -> KindRules:
    """The rules that a task is graded by: `rules` with the task's own options in them.

    Rules of kind `text` grade the text of any task. Raises `ConfigError` where the task is of another kind, `BrokenTruth`
    where an option is unknown or has a wrong value.
    """
    if rules.type != task.kind and rules.type != "text":
        raise ConfigError(
            f'rules of type "{rules.type}" can\'t grade task {task.id}, whose kind is {task.kind}; set reward.type = '
            f'"{task.kind}", or "kinds" for a data set that mixes them'
        )
    if not task.options or rules.type != task.kind:
        return rules
    return _merged(rules, json.dumps(task.options, sort_keys=True))


def rules_of(reward: RewardConfig, kind: str) -> KindRules | None:
    """The rules of `kind` that a reward grades by, alone or among others; None where it has none but a function's."""
    found: Any = reward
    if reward.type == "kinds":
        found = getattr(reward, kind)
    elif reward.type == "compose":
        found = next((part.rules for part in reward.parts if part.rules.type == kind and part.is_for(kind)), None)
    return found if isinstance(found, KindRules) and found.type == kind else None


@lru_cache(maxsize=4096)
def _merged(base: KindRules, options: str) -> KindRules:
    try:
        return type(base).model_validate(base.model_dump() | json.loads(options))
    except ValidationError as error:
        allowed = ", ".join(name for name in type(base).model_fields if name != "type")
        raise BrokenTruth("; ".join(_words(fault, allowed) for fault in error.errors(include_url=False))) from None


def _words(fault: Any, allowed: str) -> str:
    where = ".".join(["options", *map(str, fault["loc"])])
    if fault["type"] == "extra_forbidden":
        return f"{where}: no such option; allowed are {allowed}"
    return f"{where}: {fault['msg'].removeprefix('Value error, ')}"

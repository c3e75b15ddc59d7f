"""Watches a run while it trains: says and records every verdict, and tells what is to be done about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from oncurve.config.health import HealthConfig
from oncurve.monitor.watch import Decision, Verdict, Watch, decide, line


class Events(Protocol):
    """Where events go, such as a run's writer."""

    def event(self, step: int, kind: str, **data: Any) -> None: ...


class Guard:
    """Follows the rows of a run in the order in which they are written. `past` are those of before a resume."""

    def __init__(
        self,
        config: HealthConfig,
        events: Events,
        say: Callable[[str], None],
        *,
        past: Iterable[Mapping[str, Any]] = (),
        num_rollbacks: int = 0,
    ):
        self._config, self._events, self._say, self._num_rollbacks = config, events, say, num_rollbacks
        self._watch = Watch(config)
        self._watch.observe(past)
        self._changed: list[Verdict] = []

    def observe(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take in a row. A verdict that begins, grows or ends is an event, and from a warning on a line in the terminal."""
        for verdict in self._watch.observe([{"step": step, **metrics}]):
            self._changed.append(verdict)
            self._events.event(step, "health", **asdict(verdict))
            if verdict.rank:
                self._say(line(verdict))

    def decide(self, step: int, checkpoints: Sequence[int]) -> Decision | None:
        """What the verdicts since the last call lead to, where that is more than a warning; `checkpoints` are their steps."""
        decision = decide(self._changed, self._config, checkpoints, self._num_rollbacks)
        self._changed = []
        if decision is None or decision.action == "warn":
            return None
        self._events.event(
            step, "health_action", action=decision.action, verdict=decision.verdict.verdict, why=decision.why
        )
        return decision

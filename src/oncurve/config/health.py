"""What the health rules of a run look at, from where on they speak, and what a verdict leads to."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from oncurve.config.base import NotNegative, Positive, PositiveFloat, Section

VerdictName = Literal[
    "reward_hacking", "auxiliary_dominates", "drift", "too_easy", "too_hard", "duplicates", "padding", "cap_hit",
    "looping", "format", "entropy_collapse", "entropy_explosion", "gradient_spike", "gradient_dead", "stale_logprobs",
    "step_too_big", "mismatch", "verifier_broken", "no_diversity", "insufficient_data",
]  # fmt: skip
VERDICTS: tuple[str, ...] = get_args(VerdictName)
Severity = Literal["info", "warning", "critical"]
Action = Literal["warn", "pause", "stop", "rollback"]
OpenShare = Annotated[float, Field(gt=0, lt=1)]
FromOne = Annotated[float, Field(ge=1, allow_inf_nan=False)]


class HealthConfig(Section):
    """`docs/health.md` says what each rule does with its numbers. Shares are in 0..1, KL and entropy in nats.

    Two numbers of one rule are where it warns and where it is critical.
    """

    level: OpenShare = 0.05  # of false alarms at one look, over all rules together (Holm)
    window_steps: Annotated[int, Field(ge=8)] = 20
    warm_up_steps: NotNegative = 50  # in which a broken format is not held against a run

    hacking_gap: tuple[OpenShare, OpenShare] = (0.05, 0.15)  # held-out accuracy that the reward claims and is not there
    hacking_rise: OpenShare = 0.08  # of the reward since the onset, in units of the largest reward where that is over 1
    hacking_unshared: OpenShare = 0.5  # part of what the reward claims that must be missing
    auxiliary_share: tuple[OpenShare, OpenShare] = (0.7, 0.9)  # of the total reward's variance
    drift_ratio: FromOne = 1.5  # late slope of the KL to the early one
    drift_kl: PositiveFloat = 0.5
    no_signal_share: tuple[OpenShare, OpenShare, OpenShare] = (0.3, 0.5, 0.75)  # info, warning, critical
    padding_growth: PositiveFloat = 0.5  # of the mean length, relative
    padding_gain: OpenShare = 0.25  # of that growth, which the accuracy must gain, relative too
    truncated_share: tuple[OpenShare, OpenShare] = (0.05, 0.15)
    repetition_share: tuple[OpenShare, OpenShare] = (0.15, 0.30)  # in the run's first window at most, and from where on
    invalid_share: OpenShare = 0.05
    entropy_low: OpenShare = 0.1  # of the run's own start
    entropy_high: FromOne = 2.0  # times the run's own start
    flat_reward: PositiveFloat = 0.05  # a change whose upper bound lies under this is none
    spike_deviations: PositiveFloat = 8.0  # robust ones, of the gradient norm over the median of the 50 values before
    spike_factor: FromOne = 3.0  # times that median, both
    spike_count: Positive = 3  # in 50 steps
    dead_share: OpenShare = 0.4  # of steps whose gradient is exactly zero
    stale_deviation: PositiveFloat = 1e-3  # of a ratio from 1 that float32 does not explain
    clip_share: tuple[OpenShare, OpenShare] = (0.2, 0.4)  # of tokens, both sides together
    clip_imbalance: FromOne = 3.0  # low to high, where the clip binds on more than 5 % of tokens
    importance: tuple[PositiveFloat, PositiveFloat] = (0.5, 2.0)  # where the mean weight may lie
    effective_sample: OpenShare = 0.3
    mismatch_kl: PositiveFloat = 0.1
    verifier_errors: tuple[OpenShare, OpenShare] = (0.01, 0.05)
    duplicate_share: OpenShare = 0.5  # of a group's answers

    actions: dict[VerdictName, Action] = Field(default_factory=dict)  # of a verdict that is critical; others only warn
    act_at: Literal["warning", "critical"] = "critical"
    rollback_with: tuple[str, ...] = ()  # what a rollback changes, such as "optimizer.learning_rate=1e-4"
    max_rollbacks: Positive = 1

    @field_validator("*", mode="before")
    @classmethod
    def _tuples(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value  # TOML has no tuples

    @model_validator(mode="after")
    def _a_rollback_changes_something(self) -> Self:
        if "rollback" in self.actions.values() and not self.rollback_with:
            raise ValueError(
                "a rollback that changes nothing meets the same flaw again; say in health.rollback_with what it changes, "
                'such as ["optimizer.learning_rate=1e-4"]'
            )
        return self

    @model_validator(mode="after")
    def _limits_rise(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, tuple) and name != "rollback_with" and list(value) != sorted(set(value)):
                raise ValueError(f"health.{name} goes from the milder limit to the harder one; got {list(value)}")
        return self

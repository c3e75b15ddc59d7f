"""How groups are made: their size, what becomes of those without signal, and the order of the tasks."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, create_model, model_validator

from oncurve.config.base import NotNegativeFloat, Positive, PositiveFloat, Section, Share
from oncurve.config.rewards import KIND_RULES, KindName


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value  # TOML and JSON have no tuples


Band = Annotated[tuple[Share, Share], BeforeValidator(_tuple)]  # of the expected success, both ends in it


def _is_band(band: Band | None) -> None:
    """Raises `ValueError` for a band that holds nothing."""
    if band is not None and band[0] >= band[1]:
        raise ValueError(f"band {list(band)} is empty; write [low, high] with low < high")


class FixedSize(Section):
    """Every prompt gets `sampling.answers_per_prompt` answers."""

    type: Literal["fixed"] = "fixed"


class AdaptiveSize(Section):
    """Every prompt gets `min` answers, and the rest of the step's budget goes where a signal is most likely."""

    type: Literal["adaptive"]
    min: Annotated[int, Field(ge=2)] = 4
    max: Annotated[int, Field(ge=2)] = 16


class Keep(Section):
    """Groups without signal run forward only, and count in the denominators."""

    type: Literal["keep"] = "keep"


class Skip(Section):
    """As `keep`, but without the forward: the same gradient for less time."""

    type: Literal["skip"]


class Resample(Section):
    """Groups of further tasks are sampled in their place (dynamic sampling, arXiv 2503.14476 section 3.2)."""

    type: Literal["resample"]
    max_rounds: Positive = 3


class Hotter(Section):
    """More answers to the same task join the group, at a temperature that rises from round to round."""

    type: Literal["hotter"]
    factor: Annotated[float, Field(gt=1)] = 1.3  # of the temperature, once for every round
    max_temperature: PositiveFloat = 2.0
    max_rounds: Positive = 2
    num_answers: Positive = 4  # to each such task in each round


class Reassign(Section):
    """Their places in the next step go to known tasks within the band of success; the tasks themselves rest."""

    type: Literal["reassign"]
    band: Band = (0.2, 0.8)
    rest_steps: Positive = 20  # doubled each time that the task's next group has no signal either

    @model_validator(mode="after")
    def _holds_something(self) -> Self:
        _is_band(self.band)
        return self


class Supervise(Section):
    """They learn from the task's written answer: a supervised loss with this weight for each of them."""

    type: Literal["supervise"]
    weight: PositiveFloat = 0.1


class GroupsConfig(Section):
    """Group sizes and groups without signal. `docs/groups.md` has the formulas."""

    size: Annotated[FixedSize | AdaptiveSize, Field(discriminator="type")] = FixedSize()
    no_signal: Annotated[
        Keep | Skip | Resample | Hotter | Reassign | Supervise, Field(discriminator="type")
    ] = Keep()  # fmt: skip
    forgetting: Annotated[float, Field(ge=0, lt=1)] = 0.02  # share of what is known of a task that a step takes away
    prior_strength: PositiveFloat = 2.0  # answers that the success of the task's kind counts as


KindWeights = create_model("KindWeights", __base__=Section, **dict.fromkeys(KIND_RULES, (NotNegativeFloat, 0.0)))


class CurriculumConfig(Section):
    """Which tasks are trained on, and in which order."""

    order: Literal["shuffled", "easy_first"] = "shuffled"  # easy_first: by what earlier passes showed
    band: Band | None = None  # tasks known to lie outside are left out of a pass
    kind_weights: KindWeights = KindWeights()  # share of a step's prompts by kind; all 0: as the data set has them
    heldout_kinds: Annotated[tuple[KindName, ...], BeforeValidator(_tuple)] = ()  # never trained on

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _is_band(self.band)
        if both := [kind for kind in self.heldout_kinds if getattr(self.kind_weights, kind)]:
            raise ValueError(f"kind {both[0]} has a weight and is held out; leave it out of one of them")
        return self

    @property
    def by_success(self) -> bool:
        """Whether the order depends on what the model can do."""
        return self.order == "easy_first" or self.band is not None

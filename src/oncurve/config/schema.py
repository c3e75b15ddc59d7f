"""What a configuration can say. Every field states its unit and default; unknown keys are refused."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from oncurve.config.base import Momentum, NotNegative, NotNegativeFloat, Positive, PositiveFloat, Section, Share
from oncurve.config.groups import CurriculumConfig, GroupsConfig
from oncurve.config.health import HealthConfig
from oncurve.config.rewards import ComposeRules, GroundingRules, RewardConfig
from oncurve.config.trackers import Trackers


def _is_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(
            f"name is one folder's name of letters, digits, _, - and . (runs_folder says where it stands); got {name}"
        )
    return name


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value  # TOML has no tuples


Name = Annotated[str, AfterValidator(_is_name)]


class LoraConfig(Section):
    """Low-rank adapters train in place of the weights, which stay frozen and are the reference (arXiv 2106.09685)."""

    rank: Positive = 16
    alpha: PositiveFloat = 32.0
    rslora: bool = False  # scale by alpha / sqrt(rank) rather than alpha / rank (arXiv 2312.03732)
    targets: Literal["all-linear", "language"] = (
        "all-linear"  # every linear layer but the head, or the language model's
    )


class ModelConfig(Section):
    path: str = "builtin:tiny"  # builtin:tiny, a folder (also a run's), or a hub id
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"
    attention: Literal["sdpa", "flex_attention", "eager"] = "sdpa"  # flex_attention: for long rows on a GPU
    lora: LoraConfig | None = None
    gradient_checkpointing: bool = False  # run each layer again in the backward rather than keep what it computed

    @field_validator("device")
    @classmethod
    def _known(cls, device: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]+)?", device):
            raise ValueError(f"device is auto, cpu, mps, cuda or cuda:NUMBER; got {device}")
        return device

    @model_validator(mode="after")
    def _has_a_base(self) -> Self:
        if self.lora and self.path == "builtin:untrained":
            raise ValueError(
                "lora trains beside a model's weights, and builtin:untrained has none on disk that a saved adapter could "
                "name; set path to builtin:tiny, a folder or a hub id"
            )
        return self


class ScenesData(Section):
    """The built-in scenes; two splits never share a random stream."""

    type: Literal["scenes"] = "scenes"
    split: Literal["train", "heldout"] = "train"
    num_scenes: Positive = 20_000
    max_things: Annotated[int, Field(ge=1, le=4)] = 3
    prompt: str = "box {phrase}"


class FiguresData(Section):
    """The built-in drawings of a person, tasks of the kind `evidence`; two splits never share a random stream."""

    type: Literal["figures"]
    split: Literal["train", "heldout"] = "train"
    num_figures: Positive = 20_000
    size_px: Annotated[int, Field(ge=32, le=2048)] = 256
    language: Literal["en", "zh"] = "en"
    prompt: str | None = None  # None: a full instruction in the language


class JsonlData(Section):
    """One object a line: `image` (a path, relative to the file), `phrase`, `box`."""

    type: Literal["jsonl"]
    path: str
    space: Literal["unit", "thousand", "percent", "pixel_original"]  # of the file's boxes; declared, never guessed
    order: Literal["xyxy", "xywh", "cxcywh", "yxyx"]
    prompt: str = "box {phrase}"


class CocoData(Section):
    """COCO's instances JSON; a task "the <category>" wherever a category occurs once in an image."""

    type: Literal["coco"]
    path: str
    images: str  # the folder that `file_name` is relative to
    prompt: str = "box {phrase}"


class TasksData(Section):
    """Tasks of any kind, one object a line: `kind`, `prompt`, `truth`, and where needed `images`, `options`."""

    type: Literal["tasks"]
    path: str


DataConfig = Annotated[ScenesData | FiguresData | JsonlData | CocoData | TasksData, Field(discriminator="type")]


class SamplingConfig(Section):
    prompts_per_step: Positive = 16
    answers_per_prompt: Annotated[int, Field(ge=2)] = 8
    group_size: Annotated[int, Field(ge=2)] | None = None  # splits one prompt's answers; None: one group a prompt
    temperature: PositiveFloat = 1.0
    temperatures: Annotated[tuple[PositiveFloat, ...], Field(min_length=1), BeforeValidator(_tuple)] | None = (
        None  # a ladder in its place: answer i of a prompt is written at temperatures[i % their number]
    )
    max_new_tokens: Positive = 16

    @model_validator(mode="after")
    def _has_one_temperature(self) -> Self:
        if self.temperatures and self.temperature != 1:
            raise ValueError(
                f"temperature {self.temperature:g} and temperatures {list(self.temperatures)} are both set; leave one out"
            )
        return self

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.group_size and self.answers_per_prompt % self.group_size:
            divisors = [n for n in range(2, self.answers_per_prompt + 1) if self.answers_per_prompt % n == 0]
            raise ValueError(
                f"group_size {self.group_size} does not divide answers_per_prompt {self.answers_per_prompt}; "
                f"allowed here: {', '.join(map(str, divisors))}, or no group_size for one group a prompt"
            )
        return self

    @property
    def ladder(self) -> tuple[float, ...]:
        """The temperatures of a prompt's answers, in turn."""
        return self.temperatures or (self.temperature,)

    @property
    def answers_per_group(self) -> int:
        return self.group_size or self.answers_per_prompt

    @property
    def groups_per_prompt(self) -> int:
        return self.answers_per_prompt // self.answers_per_group


class AdvantageConfig(Section):
    """`(r - baseline) / (std + eps)`, with the deviation of the group or of the whole update's answers."""

    baseline: Literal["mean", "leave_one_out", "none"] = "mean"  # always of the group
    std: Literal["sample", "population", "none"] = "sample"
    over: Literal["group", "batch"] = "group"  # batch: mean and deviation over all answers of an update (REINFORCE++)
    eps: PositiveFloat = 1e-4
    tolerance: NotNegativeFloat = 1e-9  # rewards of a group no further apart than this are equal: there is no signal

    @model_validator(mode="after")
    def _has_a_baseline(self) -> Self:
        if self.baseline == "none" and self.over == "group":
            raise ValueError(
                'baseline = "none" leaves the batch\'s mean as the baseline and so needs over = "batch"; in a group use '
                '"mean" or "leave_one_out"'
            )
        return self


class KlConfig(Section):
    """The KL term to the reference. `beta` 0 leaves the reference out altogether."""

    beta: NotNegativeFloat = 0.0
    estimator: Literal["k1", "k2", "k3"] = "k3"
    place: Literal["loss", "reward"] = "loss"
    move_every: NotNegative = 0  # updates after which the reference moves; 0: it stays where the run began
    move_share: Annotated[float, Field(gt=0, le=1)] = 0.6  # reference <- share policy + (1 - share) reference

    @model_validator(mode="after")
    def _has_a_gradient(self) -> Self:
        if self.beta > 0 and self.place == "loss" and self.estimator == "k1":
            raise ValueError(
                "k1 in the loss does nothing: its gradient is 0 in expectation on-policy (arXiv 2510.01555); "
                'use estimator = "k3" or "k2", or place = "reward"'
            )
        if self.beta > 0 and self.place == "reward" and self.estimator != "k1":
            raise ValueError(f'place = "reward" takes k1, not {self.estimator}; set estimator = "k1"')
        if self.move_every and not self.beta:
            raise ValueError("move_every moves the reference of the KL term, and beta = 0 has none; set beta above 0")
        return self


class OptimizerConfig(Section):
    """The rate warms up linearly, then follows the schedule to `final_share` of itself."""

    type: Literal["adamw", "muon"] = "adamw"
    learning_rate: PositiveFloat = 3e-4
    betas: tuple[Momentum, Momentum] = (0.9, 0.99)
    weight_decay: NotNegativeFloat = 0.0
    warmup_updates: NotNegative = 10
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    final_share: Share = 0.0
    max_grad_norm: PositiveFloat = 1.0

    @field_validator("betas", mode="before")
    @classmethod
    def _pair(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value  # TOML has no tuples


class Objective(Section):
    """What every objective has. `docs/objectives.md` writes each of them out."""

    kl: KlConfig = KlConfig()
    reduction: Literal["sequence_mean", "group_mean", "token_mean", "constant"] = "sequence_mean"
    passes: Positive = 1  # over the same answers
    mini_batches: Positive = 1  # optimizer steps of one pass, each with its share of the groups
    entropy: NotNegativeFloat = 0.0  # coefficient of the entropy bonus
    importance_cap: Annotated[float, Field(ge=1)] | None = None  # of exp(old - sampler), weight of the policy term
    truncated: Literal["keep", "mask"] = "keep"  # mask: an answer cut off at max_new_tokens has no part in the loss
    sft_weight: NotNegativeFloat = 0.0  # of the supervised loss on the tasks' written answers

    @property
    def optimizer_steps(self) -> int:
        """Of one update."""
        return self.passes * self.mini_batches


class GrpoObjective(Objective):
    """GRPO, arXiv 2402.03300 eq. 3, with the clip range of either side on its own (DAPO, arXiv 2503.14476 eq. 10).

    `ratio = "sequence"` takes the geometric mean of an answer's token ratios (GSPO, arXiv 2507.18071 eq. 7).
    """

    type: Literal["grpo"] = "grpo"
    ratio: Literal["token", "sequence"] = "token"
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    clip_high: PositiveFloat = 0.2

    @model_validator(mode="after")
    def _clips_can_bind(self) -> Self:
        if self.ratio == "sequence" and max(self.clip_low, self.clip_high) > 0.1:
            raise ValueError(
                f"clips of {self.clip_low:g} and {self.clip_high:g} never bind a sequence ratio, which stays near 1; set "
                "clip_low = 3e-4 and clip_high = 4e-4 (arXiv 2507.18071 section 5.1)"
            )
        return self


class CispoObjective(Objective):
    """CISPO, arXiv 2506.13585 eq. 4 and 5: the ratio is clipped from above, held constant, and weighs `A logp`."""

    type: Literal["cispo"]
    clip_high: PositiveFloat = 4.0  # the paper tunes it and leaves the lower side open
    reduction: Literal["sequence_mean", "group_mean", "token_mean", "constant"] = "token_mean"


class PpoObjective(Objective):
    """PPO, arXiv 1707.06347 eq. 7 and 9, with a value head and GAE (arXiv 1506.02438 eq. 16)."""

    type: Literal["ppo"]
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    clip_high: PositiveFloat = 0.2
    reduction: Literal["sequence_mean", "group_mean", "token_mean", "constant"] = "token_mean"
    gamma: Share = 1.0  # discount of one token
    gae_lambda: Share = 0.95
    whiten: bool = True  # advantages to mean 0 and deviation 1 over an update's tokens
    value_clip: PositiveFloat = 0.2  # how far a value may move from the old one, in units of reward
    value_weight: PositiveFloat = 0.1  # of the value loss in the model's own gradient
    critic: OptimizerConfig = OptimizerConfig(learning_rate=1e-3)  # of the value head


ObjectiveConfig = Annotated[GrpoObjective | CispoObjective | PpoObjective, Field(discriminator="type")]


class EvaluateConfig(Section):
    every_steps: NotNegative = 50  # 0: only before and after
    num_tasks: Positive = 500
    num_probes: NotNegative = 8
    batch_size: Positive = 64
    general: bool = False  # ask the built-in general questions too, to see what is forgotten


EvalMetric = Literal[
    "eval/mean_iou/mean",
    "eval/accuracy/mean",
    "eval/value/mean",
    "eval/heldout/acc@0.75",
    "eval/heldout/acc@0.95",
    "eval/heldout/valid_format",
]


class CheckpointConfig(Section):
    every_steps: NotNegative = 50  # 0: only at the end
    keep_last: Positive = 2
    keep_best: EvalMetric | None = None  # keep the checkpoint of the highest such evaluation too; eval/mean_iou will do

    @field_validator("keep_best", mode="before")
    @classmethod
    def _in_full(cls, name: object) -> object:
        """`eval/mean_iou` for `eval/mean_iou/mean`, `eval/accuracy` for `eval/accuracy/mean`."""
        return f"{name}/mean" if name in ("eval/mean_iou", "eval/accuracy", "eval/value") else name


class TrainConfig(Section):
    """`oncurve train`."""

    name: Name = "run"  # of the run's folder
    runs_folder: str = "runs"
    seed: NotNegative = 0
    num_steps: Positive = 200
    accumulate_steps: Positive = 1  # steps whose gradients make one update
    micro_batch_tokens: Positive = 16_384  # tokens of one forward and backward
    model: ModelConfig = ModelConfig()
    data: DataConfig = ScenesData()
    heldout: DataConfig = ScenesData(split="heldout", num_scenes=2_000)
    sampling: SamplingConfig = SamplingConfig()
    groups: GroupsConfig = GroupsConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    reward: RewardConfig = GroundingRules()
    advantage: AdvantageConfig = AdvantageConfig()
    objective: ObjectiveConfig = GrpoObjective()
    optimizer: OptimizerConfig = OptimizerConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    trackers: Trackers = ()
    health: HealthConfig = HealthConfig()

    @model_validator(mode="after")
    def _updates_are_whole(self) -> Self:
        if self.num_steps % self.accumulate_steps:
            raise ValueError(
                f"num_steps {self.num_steps} is no multiple of accumulate_steps {self.accumulate_steps}: the last update "
                f"would lack steps; the next multiple is {-(-self.num_steps // self.accumulate_steps) * self.accumulate_steps}"
            )
        return self

    @model_validator(mode="after")
    def _the_best_is_measured(self) -> Self:
        saved, measured = self.checkpoint.every_steps, self.evaluate.every_steps
        if self.checkpoint.keep_best and saved and (not measured or saved % measured):
            raise ValueError(
                f"keep_best chooses among evaluated checkpoints, and checkpoint.every_steps {saved} is no multiple of "
                f"evaluate.every_steps {measured}; set evaluate.every_steps to {saved} or a divisor of it"
            )
        return self

    @model_validator(mode="after")
    def _objective_fits(self) -> Self:
        objective = self.objective
        groups = self.prompts_per_update * self.sampling.groups_per_prompt
        if groups % objective.mini_batches:
            divisors = [n for n in range(1, groups + 1) if groups % n == 0]
            raise ValueError(
                f"objective.mini_batches {objective.mini_batches} does not divide the {groups} groups of an update; allowed "
                f"here: {', '.join(map(str, divisors))}"
            )
        if objective.kl.move_every and self.model.lora:
            raise ValueError(
                "objective.kl.move_every moves the reference, which under model.lora is the frozen base; leave one of them out"
            )
        if self.reward.type == "compose" and self.reward.normalise == "before":
            self._decouples()
        if objective.type == "ppo" and self.advantage != AdvantageConfig():
            raise ValueError(
                "[advantage] compares answers of a group; PPO's advantages come from its critic "
                "(objective.gamma, gae_lambda, whiten). Leave [advantage] out"
            )
        return self

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        size, policy, sampling = self.groups.size, self.groups.no_signal.type, self.sampling
        if size.type == "adaptive" and not size.min <= sampling.answers_per_prompt <= size.max:
            raise ValueError(
                f"groups.size: min {size.min} and max {size.max} don't hold sampling.answers_per_prompt "
                f"{sampling.answers_per_prompt}, the mean over a step's prompts; set min and max to either side of it"
            )
        if sampling.group_size and (size.type == "adaptive" or policy in ("resample", "hotter", "reassign")):
            raise ValueError(
                "sampling.group_size cuts one prompt's answers into groups of one size, which an adaptive size, resample, "
                "hotter and reassign don't go with; leave group_size out"
            )
        if policy != "keep":
            self._silent_groups_have_no_gradient(policy)
        if policy == "supervise":
            if self.objective.sft_weight:
                raise ValueError(
                    "objective.sft_weight supervises every group, and groups.no_signal supervise those without signal; "
                    "leave one of them out"
                )
            if not self._writes_truths:
                raise ValueError(
                    f'groups.no_signal type = "supervise" needs truths that can be written out as answers, and those of '
                    f'reward.type "{self.reward.type}" can\'t be; it takes grounding with dialect "box01" and evidence, alone '
                    "or as a part. Choose another type for other tasks"
                )
        return self

    @property
    def _writes_truths(self) -> bool:
        """Whether tasks that this reward grades can have a written answer."""
        reward = self.reward
        rules = [part.rules for part in reward.parts] if isinstance(reward, ComposeRules) else [reward]
        return any(
            own.dialect == "box01" if own.type == "grounding" else own.type in ("evidence", "kinds", "python")
            for own in rules
        )

    def _silent_groups_have_no_gradient(self, policy: str) -> None:
        """Raises `ValueError` where a group of equal rewards would teach something all the same."""
        objective, no_signal = self.objective, f'groups.no_signal type = "{policy}"'
        if objective.type == "ppo":
            raise ValueError(f"{no_signal} is about groups of equal rewards, and PPO compares no group; leave it out")
        if self.advantage.over == "batch":
            raise ValueError(f'{no_signal} is about signal in a group; set advantage.over = "group" or leave it out')
        if self.reward.type == "compose" and self.reward.normalise == "before":
            raise ValueError(
                f'{no_signal} looks at the whole reward, and reward.normalise "before" at each part; leave it out'
            )
        if policy == "skip" and (objective.kl.beta or objective.entropy):
            raise ValueError(
                f"{no_signal} leaves groups out of the forward, but a KL term or an entropy bonus gives them a gradient; "
                'set type = "keep"'
            )

    def _decouples(self) -> None:
        """Raises `ValueError` where advantages of single parts have no meaning."""
        if self.objective.type == "ppo":
            raise ValueError('reward.normalise = "before" makes advantages in groups, and PPO has none; leave it out')
        if self.advantage.over != "group":
            raise ValueError(
                'reward.normalise = "before" normalises over the batch by itself; set advantage.over = "group"'
            )
        if self.objective.kl.beta > 0 and self.objective.kl.place == "reward":
            raise ValueError('reward.normalise = "before" leaves no one reward for the KL term; set kl.place = "loss"')

    @property
    def group_sizes(self) -> str:
        """How many answers a group has, in words: `8`, or `4 to 16`."""
        size = self.groups.size
        return f"{size.min} to {size.max}" if size.type == "adaptive" else str(self.sampling.answers_per_group)

    @property
    def prompts_per_update(self) -> int:
        return self.sampling.prompts_per_step * self.accumulate_steps

    @property
    def answers_per_step(self) -> int:
        return self.sampling.prompts_per_step * self.sampling.answers_per_prompt


class SftStage(Section):
    """One stage of supervised training: data, labels, and a learning rate of its own."""

    name: str
    num_updates: Positive
    data: DataConfig = ScenesData()
    labels: Literal["exact", "loose"] = "exact"
    looseness: Share = 0.3  # loose labels: each side is drawn outwards by up to this share of the box's side
    optimizer: OptimizerConfig = OptimizerConfig()


class SftConfig(Section):
    """`oncurve sft`."""

    name: Name = "sft"
    runs_folder: str = "runs"
    seed: NotNegative = 0
    batch_size: Positive = 64
    soften_std: NotNegativeFloat = 2.0  # spread of a coordinate's target over its neighbours, in steps of 0.01; 0: none
    stages: Annotated[tuple[SftStage, ...], Field(min_length=1)]
    model: ModelConfig = ModelConfig()
    heldout: DataConfig = ScenesData(split="heldout", num_scenes=2_000)
    evaluate: EvaluateConfig = EvaluateConfig()
    max_seconds: PositiveFloat | None = None  # stop after so many seconds of training, at the end of an update

    @field_validator("stages", mode="before")
    @classmethod
    def _tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

"""The types that stages hand to one another: frozen, slotted, free of torch.

Suffixes of arrays: `_P` prompts, `_G` answers of a group, `_T` tokens, `_V` vocabulary. Boxes are `x1, y1, x2, y2` in
0..1 of the original image; other spaces are converted at the border by a declared dialect (`oncurve.geometry.dialects`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, Protocol

from PIL import Image

from oncurve.truths import Box as Box
from oncurve.truths import Truth

Kind = Literal[
    "grounding", "detection", "pointing", "counting", "ocr", "choice", "short_answer",
    "math", "code", "sql", "evidence", "reply", "text",
]  # fmt: skip
StopReason = Literal["end", "length"]
Status = Literal["scored", "invalid", "error"]


@dataclass(frozen=True, slots=True)
class TaskImage:
    """An image as the processor is given it: RGB, upright. Example: `TaskImage.of(Image.new("RGB", (64, 64)), "cat.jpg")`."""

    pixels: Image.Image
    sha256: str
    source: str  # where it came from: a file's path, or "scenes:train/17"

    @classmethod
    def of(cls, pixels: Image.Image, source: str) -> "TaskImage":
        """Wrap an RGB image; the hash covers size and pixel values, not the file's bytes."""
        digest = sha256(repr(pixels.size).encode() + pixels.tobytes()).hexdigest()
        return cls(pixels, digest, source)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a prompt, its images before its text. Example: `Message("user", "box the cat", (image,))`."""

    role: Literal["system", "user", "assistant"]
    text: str
    images: tuple[TaskImage, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One question. Example: `Task("scenes:train/17", "grounding", (Message("user", "box the cat", (image,)),), truth)`."""

    id: str  # unique in its data set
    kind: Kind
    messages: tuple[Message, ...]
    truth: Truth
    options: Mapping[str, Any] = field(default_factory=dict)  # keys of its kind's rules that the task sets for itself
    category: str = ""  # what it asks about; evaluation breaks its numbers down by it

    @property
    def images(self) -> tuple[TaskImage, ...]:
        return tuple(image for message in self.messages for image in message.images)


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens by one author. Example: `Segment((5, 31, 7, 1), (-0.1, -2.3, 0.0, 0.0), trained=True)`."""

    tokens: tuple[int, ...]
    logps: tuple[float, ...]  # nats, of each token, over the allowed vocabulary at the answer's temperature
    trained: bool  # the completion mask: False for what an environment wrote


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled answer. The end token, where it came, is the last token and is trained on.

    Example: `Rollout("scenes:train/17", 3, (segment,), "<box>0.21,0.31,0.59,0.69</box>", "end", 12, 1.0, 0)`.
    """

    task_id: str
    index: int  # of the answer among all answers to its task in this step
    segments: tuple[Segment, ...]
    text: str  # without the end token
    stop: StopReason
    policy_version: int  # number of updates that the writing policy had seen
    temperature: float
    seed: int  # the run's; with the step, task id and index it fixes the answer's random stream
    model_image_sizes: tuple[tuple[int, int], ...] = ()  # width and height of each image in px, as the model saw it

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for segment in self.segments for token in segment.tokens)

    @property
    def logps(self) -> tuple[float, ...]:
        return tuple(logp for segment in self.segments for logp in segment.logps)

    @property
    def mask(self) -> tuple[bool, ...]:
        """The completion mask over `tokens`: which of them are trained."""
        return tuple(segment.trained for segment in self.segments for _ in segment.tokens)


@dataclass(frozen=True, slots=True)
class Score:
    """What a verifier says of one answer.

    Example: `Score("scored", 0.8145, True, {"format": 1.0, "iou": 0.9025}, [0.21, 0.31, 0.59, 0.69], "IoU 0.90")`.
    """

    status: Status  # "error" is a fault of the verifier or its machine, never of the model
    value: float  # the reward; the floor where invalid, NaN where error
    correct: bool | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    extracted: Any = None  # the parsed answer, plain JSON
    evidence: str = ""  # why, in words
    reason: str = ""  # of invalid or error: a short slug that is counted
    verifier: str = ""  # name/version


@dataclass(frozen=True, slots=True)
class Group:
    """Answers to one task by one policy version, scored by one set of rules; compared with one another only.

    `fingerprint` covers task, prompt, images, truth, rules and policy version (`oncurve.groups.assemble`).
    """

    task: Task
    rollouts: tuple[Rollout, ...]
    scores: tuple[Score, ...]
    fingerprint: str

    @property
    def rewards_G(self) -> tuple[float, ...]:
        return tuple(score.value for score in self.scores)

    @property
    def scored_G(self) -> tuple[bool, ...]:
        """Which answers count: all but those whose verifier failed."""
        return tuple(score.status != "error" for score in self.scores)


Role = Literal["train", "skip", "leave_out"]
"""What an update does with a group: all of it; no forward, since it has no gradient; or as if it were not there."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's groups with the advantage of every answer (0 for one whose verifier failed; all 0 where a critic gives
    every token its own).
    """

    step: int
    groups: tuple[Group, ...]
    advantages_PG: tuple[tuple[float, ...], ...]
    roles_P: tuple[Role, ...] = ()  # of the groups; () where all of them train

    def of_role(self, *roles: Role) -> tuple[Group, ...]:
        """The groups of these roles, in order."""
        return tuple(group for group, role in zip(self.groups, self.roles, strict=True) if role in roles)

    @property
    def roles(self) -> tuple[Role, ...]:
        return self.roles_P or ("train",) * len(self.groups)


@dataclass(frozen=True, slots=True)
class Request:
    """What the planner asks of the sampler: `num_answers` answers to `task`. Example: `Request(task, 8, 1.0)`."""

    task: Task
    num_answers: int
    temperature: float
    first_index: int = 0  # of these answers among all to the task in the step; it continues their random streams
    ladder: tuple[float, ...] = ()  # where given, answer `i` is written at `ladder[i % len(ladder)]`

    def temperature_of(self, index: int) -> float:
        """Of the answer with this index."""
        return self.ladder[index % len(self.ladder)] if self.ladder else self.temperature


class TaskSet(Protocol):
    """A data set: its tasks by position. Images are loaded when a task is asked for."""

    name: str

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Task: ...

    def kind(self, index: int) -> Kind:
        """Of the task at this position, without loading it."""


class Sampler(Protocol):
    """Writes answers. `step` and `seed` fix their random streams; temperature 0 is greedy."""

    def sample(self, requests: Sequence[Request], *, step: int, seed: int) -> list[tuple[Rollout, ...]]: ...


class Verifier(Protocol):
    """Grades the answers to one kind of task. `rules` are the kind's section of the configuration, the task's options in it.

    An exception that `grade` raises is a fault of the verifier; the grader makes it a score of status `error`.
    """

    version: str  # name/version

    def check(self, task: Task, rules: Any) -> None:
        """Raises `BrokenTruth` where the task can't be graded: its truth is no number, its query does not run."""

    def grade(self, task: Task, answer: Rollout, rules: Any) -> Score: ...


class Grader(Protocol):
    """Scores answers, one `Score` for each (task, answer) in order."""

    rules: str  # names and versions of all rules, part of a group's fingerprint

    def grade(self, pairs: Sequence[tuple[Task, Rollout]]) -> list[Score]: ...

"""What one row of a step's Parquet file holds: one answer, with all that is needed to follow its numbers."""

from dataclasses import dataclass

import pyarrow as pa

from oncurve.types import Kind, Status, StopReason

SCHEMA_VERSION = 1  # of the whole run folder; a reader refuses a newer one


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """One answer of one step. Log-probabilities are in nats; all lists but the images' run over the answer's tokens.

    Of an answer that was left out of the update (`trained` False) `old_logps`, `reference_logps` and `pass_logps` may
    be empty. Example: `RunReader(Path("runs/cat_and_dog")).step(12)[0]`.
    """

    step: int
    group: int  # of the step
    answer: int  # in the group
    index: int  # among all answers to its task in the step
    task_id: str
    kind: Kind
    prompt: str
    images: list[str]  # sha256 of each, as in `images/<sha256>.png`
    model_image_sizes: list[list[int]]  # width and height of each in px, as the model saw it
    truth: str  # JSON
    text: str  # without the end token
    tokens: list[int]
    token_texts: list[str]
    mask: list[bool]  # which tokens the policy wrote
    stop: StopReason
    temperature: float
    seed: int  # the run's
    policy_version: int
    fingerprint: str  # of the group
    status: Status
    value: float  # the reward; NaN where the verifier failed
    correct: bool | None
    parts: str  # JSON object: the parts of the reward
    extracted: str  # JSON: the parsed answer
    evidence: str
    reason: str
    verifier: str
    advantage: float  # PPO: the mean of its trained tokens'
    weight: float  # what one trained token weighs in the loss of its optimizer step; 0 where it has no part in it
    sampler_logps: list[float]
    old_logps: list[float]
    reference_logps: list[float] | None
    pass_logps: list[list[float]]  # of the policy, in each pass over the batch
    trained: bool  # False where the answer was left out, for example because its verifier failed
    pass_entropies: list[list[float]] | None = None  # of each token, in nats; where the loss has an entropy bonus
    token_advantages: list[float] | None = None  # PPO; it has these four
    old_values: list[float] | None = None  # of the state before each token
    returns: list[float] | None = None
    pass_values: list[list[float]] | None = None
    messages: str = "[]"  # JSON: role and text of each message of the task, as it was asked
    options: str = "{}"  # JSON: the keys of its kind's rules that the task sets for itself

    def __post_init__(self) -> None:
        lists = [self.token_texts, self.mask, self.sampler_logps]
        if self.trained:
            lists += [
                self.old_logps,
                *self.pass_logps,
                *(self.pass_entropies or []),
                *(self.pass_values or []),
            ]
            optional = (self.reference_logps, self.token_advantages, self.old_values, self.returns)
            lists += [items for items in optional if items is not None]
        lengths = [len(items) for items in lists]
        assert set(lengths) == {len(self.tokens)}, (len(self.tokens), lengths)


def _list(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element, nullable=False))


_INT, _FLOAT, _BOOL, _TEXT = pa.int64(), pa.float64(), pa.bool_(), pa.string()
_COLUMNS = {
    "step": _INT,
    "group": _INT,
    "answer": _INT,
    "index": _INT,
    "task_id": _TEXT,
    "kind": _TEXT,
    "prompt": _TEXT,
    "images": _list(_TEXT),
    "model_image_sizes": _list(_list(_INT)),
    "truth": _TEXT,
    "text": _TEXT,
    "tokens": _list(_INT),
    "token_texts": _list(_TEXT),
    "mask": _list(_BOOL),
    "stop": _TEXT,
    "temperature": _FLOAT,
    "seed": _INT,
    "policy_version": _INT,
    "fingerprint": _TEXT,
    "status": _TEXT,
    "value": _FLOAT,
    "correct": _BOOL,
    "parts": _TEXT,
    "extracted": _TEXT,
    "evidence": _TEXT,
    "reason": _TEXT,
    "verifier": _TEXT,
    "advantage": _FLOAT,
    "weight": _FLOAT,
    "sampler_logps": _list(_FLOAT),
    "old_logps": _list(_FLOAT),
    "reference_logps": _list(_FLOAT),
    "pass_logps": _list(_list(_FLOAT)),
    "trained": _BOOL,
    "pass_entropies": _list(_list(_FLOAT)),
    "token_advantages": _list(_FLOAT),
    "old_values": _list(_FLOAT),
    "returns": _list(_FLOAT),
    "pass_values": _list(_list(_FLOAT)),
    "messages": _TEXT,
    "options": _TEXT,
}
_NULLABLE = {
    "correct", "reference_logps", "pass_entropies", "token_advantages", "old_values", "returns", "pass_values",
}  # fmt: skip
ARROW_SCHEMA = pa.schema([pa.field(name, kind, nullable=name in _NULLABLE) for name, kind in _COLUMNS.items()])

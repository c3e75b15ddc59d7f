"""What several folders share: the tiny model with random weights as a policy, a few scene tasks, small builders."""

import os
from collections.abc import Callable

import pytest
from hypothesis import settings

from oncurve.config.schema import ModelConfig, ScenesData
from oncurve.tasks.sets import load_tasks
from oncurve.truths import BoxTruth
from oncurve.types import Message, Rollout, Score, Segment, Task

settings.register_profile("ci", derandomize=True)  # the same examples on every machine; elsewhere new ones every time
if os.environ.get("CI"):
    settings.load_profile("ci")

ENDS = range(10, 70)  # byte tokens that count as end tokens too, so that random answers end at every length


@pytest.fixture(scope="session")
def tasks() -> list[Task]:
    """Six scenes; their prompts have 75 or 76 tokens."""
    data = load_tasks(ScenesData(num_scenes=6))
    return [data[i] for i in range(6)]


@pytest.fixture(scope="session")
def make_policy() -> Callable:
    """`make_policy(dtype="float32")`: a policy of its own, with noise on its weights so that masks and places matter.

    `float64` computes everything in it, norms included (the model's own cast to float32).
    """
    import torch

    from oncurve.policy.load import load_policy
    from oncurve.policy.policy import Policy

    def make(dtype: str = "float32", seed: int = 0) -> Policy:
        config = ModelConfig(path="builtin:untrained", device="cpu", dtype="float32" if dtype == "float64" else dtype)
        policy = load_policy(config, seed=seed)
        perturb(policy.model)
        if dtype == "float64":
            policy.compute_dtype = torch.float64
            in_float64(policy.model)
        policy.eos_ids |= set(ENDS)
        return policy

    return make


@pytest.fixture(scope="session")
def policy(make_policy):
    """To be read only."""
    return make_policy()


@pytest.fixture(scope="session")
def perturb_weights() -> Callable:
    return perturb


@pytest.fixture(scope="session")
def to_float64() -> Callable:
    return in_float64


@pytest.fixture(scope="session")
def plain_logps() -> Callable:
    """`plain_logps(policy, prompt, answer, temperature)`: by one unpadded row, the model's own mask and positions."""
    import torch

    def logps(policy, prompt, answer, temperature: float = 1.0, model=None):
        model = model or policy.model
        types = {
            name: torch.cat([values, torch.full((len(answer),), policy.family.answer_token_type)])[None]
            for name, values in prompt.token_types.items()
        }
        images = {n: t.to(model.dtype) if t.is_floating_point() else t for n, t in prompt.images.items()}
        logits = model(input_ids=torch.tensor([prompt.ids + answer]), **types, **images, use_cache=False).logits[0]
        logits = logits[len(prompt) - 1 : -1].to(torch.promote_types(logits.dtype, torch.float32)) / temperature
        logits = logits.index_fill(-1, policy.banned_ids, -torch.inf)
        return logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None])[:, 0]

    return logps


@pytest.fixture(scope="session")
def rollout() -> Callable:
    """`rollout("t", 0, tokens=(5, 6))`: an answer with the given fields and plain ones else."""

    def make(task_id="t", index=0, *, tokens=(5, 6), logps=None, text="", stop="end", version=0, temperature=1.0):
        segment = Segment(tuple(tokens), tuple(logps or [-1.0] * len(tokens)), trained=True)
        return Rollout(task_id, index, (segment,), text, stop, version, temperature, 0)

    return make


@pytest.fixture(scope="session")
def text_task() -> Callable:
    """`text_task("t")`: a task without image, with a system prompt."""

    def make(task_id="t", *, system="answer with a box", text="box the cat", images=(), box=(0.2, 0.2, 0.6, 0.6)):
        return Task(
            task_id, "grounding", (Message("system", system), Message("user", text, tuple(images))), BoxTruth(box)
        )

    return make


@pytest.fixture(scope="session")
def failed() -> Score:
    return Score("error", float("nan"), reason="verifier", verifier="grounding/1")


def perturb(model, std: float = 0.1) -> None:
    import torch

    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += std * torch.randn(parameter.shape, generator=generator)


def in_float64(model) -> None:
    model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            assert hasattr(module, "variance_epsilon"), type(module)
            module.forward = _norm(module)


def _norm(module):
    def forward(x):
        return module.weight * x * (x.square().mean(-1, keepdim=True) + module.variance_epsilon).rsqrt()

    return forward

"""Oncurve's side of `bench/peers.py`: steps, sampling alone, the update alone. Obeys one JSON request a line on stdin."""

import json
import sys
import time
from unittest.mock import patch

import torch
import transformers
import workload
from memory import peak_bytes, present_bytes
from torch.nn import functional
from transformers import set_seed

from oncurve.batches import make_batches
from oncurve.config.schema import GrpoObjective, KlConfig, SamplingConfig, TrainConfig
from oncurve.groups.assemble import Member, assemble
from oncurve.policy.families import Family
from oncurve.policy.policy import Policy
from oncurve.rollout.local import LocalSampler
from oncurve.train import Clock
from oncurve.truths import BoxTruth
from oncurve.types import Message, Request, Score, Task, TaskImage
from oncurve.update import Updater

AFTER_IMPORTS = present_bytes()


class Grader:
    """The workload's reward, the one that the peer is given."""

    rules = "workload/1"

    def grade(self, pairs):
        return [Score("scored", workload.reward(rollout.text, task.truth.box)) for task, rollout in pairs]


def make_policy(model=None, compute_dtype: torch.dtype = torch.float32) -> Policy:
    """Every answer runs to its full length, as the peer's `min_new_tokens` makes its: the end token is banned."""
    model = (model or workload.build_model()).eval()
    beyond = range(len(workload.VOCABULARY), model.config.get_text_config().vocab_size)
    banned = [*(workload.TOKEN_IDS[token] for token in workload.SPECIAL), *beyond]
    return Policy(
        model,
        workload.build_processor(),
        Family.of(model.config),
        eos_ids=frozenset(),
        banned_ids=banned,
        compute_dtype=compute_dtype,
    )


def make_task(seed: int, num_image_tokens: tuple[int, int] | None) -> Task:
    image, box = workload.draw(seed, num_image_tokens or (1, 1))
    images = (TaskImage.of(image, f"workload/{seed}"),) if num_image_tokens else ()
    text = workload.ASK if images else workload.ASK_IN_TEXT
    return Task(f"workload/{seed}", "grounding", (Message("user", text, images),), BoxTruth(box))


class Side:
    """Steps of one shape (`bench/peers.py`), and their parts alone."""

    def __init__(self, shape: dict, policy: Policy | None = None):
        torch.set_num_threads(shape["threads"])
        self.answers, self.new_tokens = shape["answers"], shape["new_tokens"]
        self.num_image_tokens = shape["image_tokens"]
        self.config = TrainConfig(
            sampling=SamplingConfig(
                prompts_per_step=1, answers_per_prompt=self.answers, max_new_tokens=self.new_tokens
            ),
            objective=GrpoObjective(kl=KlConfig(beta=shape["beta"])),
            micro_batch_tokens=shape["micro_batch_tokens"],
        )
        self.policy = policy or make_policy()
        if shape["beta"]:
            self.policy.freeze_reference()
        self.sampler = LocalSampler(self.policy, max_new_tokens=self.new_tokens)
        self.updater = Updater(self.policy, self.config)
        self.batch = None

    def step(self, number: int) -> dict:
        """One whole step on a task of its own, so that its image is processed, too. Seconds by stage."""
        clock, grader = Clock(), Grader()
        task = make_task(number, self.num_image_tokens)
        with clock("encode"):
            self.policy.encode(task)
        with clock("sample"):
            rollouts = self.sampler.sample([Request(task, self.answers, 1.0)], step=number, seed=0)
        with clock("grade"):
            scores = grader.grade([(task, rollout) for rollout in rollouts[0]])
            pairs = zip(rollouts[0], scores, strict=True)
            groups = assemble(Member(task, rollout, score, grader.rules) for rollout, score in pairs)
            (self.batch,) = make_batches([(number, groups, ())], self.updater, self.config)
        with clock("update"):
            self.updater.update([self.batch])
        return {"seconds": sum(clock.seconds.values()), "stages": clock.seconds}

    def sample(self, number: int) -> dict:
        task = make_task(number, self.num_image_tokens)
        self.policy.encode(task)
        begin = time.perf_counter()
        self.sampler.sample([Request(task, self.answers, 1.0)], step=number, seed=0)
        return {"seconds": time.perf_counter() - begin}

    def generate(self, number: int) -> dict:
        """The same answers' worth by transformers' own `generate`, on the same model in the same process."""
        prompt = self.policy.encode(make_task(number, self.num_image_tokens))
        ids = torch.tensor([prompt.ids])
        types = {name: values[None] for name, values in prompt.token_types.items()}
        set_seed(number)
        begin = time.perf_counter()
        with torch.no_grad():
            self.policy.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                **types,
                **prompt.images,
                do_sample=True,
                top_k=0,
                num_return_sequences=self.answers,
                max_new_tokens=self.new_tokens,
                min_new_tokens=self.new_tokens,
            )
        return {"seconds": time.perf_counter() - begin}

    def _rows(self) -> list:
        (group,) = self.batch.groups
        prompt = self.policy.encode(group.task)
        return [self.policy.row(prompt, [r.tokens for r in group.rollouts], [1.0] * len(group.rollouts))]

    def update(self, number: int) -> dict:
        """The update of the last step's batch again, alone, with its tokens."""
        begin = time.perf_counter()
        self.updater.update([self.batch])
        seconds = time.perf_counter() - begin
        (row,) = self._rows()
        return {"seconds": seconds, "tokens": row.num_tokens, "tokens_plain": row.num_tokens_plain}

    def plain_update(self, number: int) -> dict:
        """The same by one row for each answer, in our own code; forwards of up to `micro_batch_tokens`."""
        self.policy.why_plain = "the bench asks"
        try:
            return self.update(number)
        finally:
            self.policy.why_plain = None

    def arithmetic(self, number: int) -> dict:
        """Useful floating-point operations of one update's forward and backward, and what plain products of the same
        sizes reach: every linear layer's, forward and both of backward, in this run."""
        (row,) = self._rows()
        sizes: dict[tuple[int, int, int], int] = {}
        hooks = [
            module.register_forward_hook(lambda m, given, out: _count(sizes, given[0], m))
            for module in self.policy.model.modules()
            if isinstance(module, torch.nn.Linear)
        ]
        image_attention = []
        attend = functional.scaled_dot_product_attention

        def counted(query, key, value, attn_mask=None, is_causal=False, **options):
            if attn_mask is None and not is_causal:  # the image tower's; the shared row is counted by what it shows
                image_attention.append(12 * query.numel() * key.shape[-2])
            return attend(query, key, value, attn_mask=attn_mask, is_causal=is_causal, **options)

        with patch.object(functional, "scaled_dot_product_attention", counted):
            self.policy.logps([row])
        for hook in hooks:
            hook.remove()
        linear = sum(6 * m * k * n * times for (m, k, n), times in sizes.items())
        begin = time.perf_counter()
        for (m, k, n), times in sizes.items():
            x, weight, grad = torch.randn(m, k), torch.randn(n, k), torch.randn(m, n)
            for _ in range(times):
                x @ weight.T, grad @ weight, grad.T @ x
        product_seconds = time.perf_counter() - begin
        text = self.policy.model.config.get_text_config()
        prompt, answers = len(row.prompt), [len(answer) for answer in row.answers]
        pairs = prompt * (prompt + 1) // 2 + sum(n * prompt + n * (n + 1) // 2 for n in answers)
        attention = 12 * pairs * text.hidden_size * text.num_hidden_layers + sum(image_attention)
        return {"linear": linear, "attention": attention, "product_seconds": product_seconds}


def _count(sizes: dict, given: torch.Tensor, module: torch.nn.Linear) -> None:
    size = (given.numel() // given.shape[-1], module.in_features, module.out_features)
    sizes[size] = sizes.get(size, 0) + 1


def main() -> None:
    side = None
    for line in sys.stdin:
        request = json.loads(line)
        if "shape" in request:
            side = Side(request["shape"])
            answer = {"torch": torch.__version__, "transformers": transformers.__version__}
        else:
            answer = getattr(side, request["do"])(request["number"])
        answer["memory_bytes"] = peak_bytes() - AFTER_IMPORTS
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

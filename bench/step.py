"""One training step with and without prefix sharing, side by side: seconds by stage, tokens, peak memory.

    python bench/step.py                     the shape of recipes/cat_and_dog.toml on the tiny model
    python bench/step.py --shape long        1 prompt of about 1,000 tokens, 56 answers of 20, a random Qwen2.5-VL

Both sides run in one process on one policy and take turns, each first in every other step. They do the same work with
the same functions, except for the prompt, its image included: `shared` runs it once for all its answers, in the sampler
and in the update; `plain` runs it again for each answer, as rows that don't know of one another must. Decoding is the
same, and so is the limit on the tokens of one forward of the update. Peak memory is that of a process of its own for
each side.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import workload
from rich.console import Console
from rich.table import Table
from side_oncurve import Grader

from oncurve.batches import answer_records, make_batches
from oncurve.config.loader import load
from oncurve.config.schema import SamplingConfig, TrainConfig
from oncurve.groups.assemble import Member, assemble
from oncurve.groups.planner import Planner
from oncurve.policy.families import Family
from oncurve.policy.load import load_policy
from oncurve.policy.policy import Policy
from oncurve.record.writer import RunWriter
from oncurve.rewards.grader import LocalGrader
from oncurve.rollout.local import LocalSampler
from oncurve.tasks.scenes import draw_scene, make_scene
from oncurve.tasks.sets import load_tasks
from oncurve.train import Clock
from oncurve.truths import BoxTruth
from oncurve.types import Kind, Message, Task, TaskImage
from oncurve.update import Updater

RECIPE = Path(__file__).parents[1] / "recipes" / "cat_and_dog.toml"
SIDES = ("shared", "plain")
STAGES = ("plan", "sample", "grade", "assemble", "update", "record")
UNMOVED = (
    1e-12  # learning rate: a whole optimizer step that leaves both sides with the same weights, so the same answers
)

LONG_SCENE_PX = 28 * 32  # 32 x 32 image tokens


class PlainSampler(LocalSampler):
    """Prefills a prompt again for each of its answers; all of them are then decoded together, as before."""

    def _decode(self, batch: list[tuple]) -> None:
        super()._decode([(key, prompt, [answer]) for key, prompt, answers in batch for answer in answers])


class LongTasks:
    """Built-in scenes drawn so large that a Qwen2.5-VL sees about 1,000 tokens of each."""

    name = "long scenes"

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Task:
        scene = make_scene("train", index)
        image = TaskImage.of(draw_scene(scene, LONG_SCENE_PX), f"long/{index}")
        return Task(f"long/{index}", "grounding", (Message("user", "0.50", (image,)),), BoxTruth(scene.box))

    def kind(self, index: int) -> Kind:
        return "grounding"


class Bench:
    """Policy, tasks and the machinery of either side."""

    def __init__(self, shape: str, folder: Path):
        if shape == "recipe":
            self.config = _unmoved(load(RECIPE, [], TrainConfig))
            self.tasks, self.policy = load_tasks(self.config.data), load_policy(self.config.model)
        else:
            sampling = SamplingConfig(prompts_per_step=1, answers_per_prompt=56, group_size=8, max_new_tokens=20)
            self.config = _unmoved(TrainConfig(sampling=sampling))
            self.tasks, self.policy = LongTasks(), _random_qwen()
        self.planner = Planner(self.tasks, self.config)
        # An untrained model's answers are all malformed; without a reward that differs there would be nothing to update.
        self.grader = LocalGrader(self.config.reward) if shape == "recipe" else Grader()
        new = self.config.sampling.max_new_tokens
        self.samplers = {
            "shared": LocalSampler(self.policy, max_new_tokens=new),
            "plain": PlainSampler(self.policy, max_new_tokens=new),
        }
        self.updater = Updater(self.policy, self.config)
        self.writers = {side: RunWriter.create(folder / side, self.config, "bench/step.py") for side in SIDES}

    def step(self, side: str, number: int) -> dict[str, dict[str, float]]:
        """One step of `oncurve train`: its seconds by stage and its tokens."""
        policy, sampler, clock = self.policy, self.samplers[side], Clock()
        policy.why_plain = "bench" if side == "plain" else None
        policy._prompts.clear()  # else the second side would find the first one's encoded images
        prefilled, decoded = sampler.prefill_tokens, sampler.decoded_tokens
        with clock("plan"):
            requests = self.planner.plan(number)
        with clock("sample"):
            rollouts_PG = sampler.sample(requests, step=number, seed=self.config.seed)
        with clock("grade"):
            pairs = [(q.task, r) for q, rollouts in zip(requests, rollouts_PG, strict=True) for r in rollouts]
            scores = self.grader.grade(pairs)
        with clock("assemble"):
            graded = zip(pairs, scores, strict=True)
            members = [Member(task, rollout, score, self.grader.rules) for (task, rollout), score in graded]
            groups = assemble(members, self.config.sampling.group_size)
            self.writers[side].images(image for group in groups for image in group.task.images)
            (batch,) = make_batches([(number, groups, ())], self.updater, self.config)
        with clock("update"):
            result = self.updater.update([batch])
        with clock("record"):
            records = answer_records(batch, result.terms[0], policy, self.config.objective)
            self.writers[side].step(number, records)
        prompts = [policy.encode(group.task) for group in groups for _ in group.rollouts]
        run = prompts if side == "plain" else {prompt.key: prompt for prompt in prompts}.values()
        answer_tokens = sum(len(r.tokens) for group in groups for r in group.rollouts)
        tokens = {
            "prefilled": sampler.prefill_tokens - prefilled,
            "decoded": sampler.decoded_tokens - decoded,
            "update_forward": sum(map(len, run)) + answer_tokens,
        }
        return {"seconds": clock.seconds, "tokens": tokens}


def _unmoved(config: TrainConfig) -> TrainConfig:
    optimizer = config.optimizer.model_copy(update={"learning_rate": UNMOVED, "weight_decay": 0.0})
    return config.model_copy(update={"optimizer": optimizer, "accumulate_steps": 1})


def _random_qwen() -> Policy:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = workload.build_model().eval().to(device)
    eos = frozenset({workload.TOKEN_IDS[workload.EOS]})
    banned = {workload.TOKEN_IDS[token] for token in workload.SPECIAL} - eos
    return Policy(model, workload.build_processor(), Family.of(model.config), eos_ids=eos, banned_ids=banned)


def measure(shape: str, num_steps: int, sides: tuple[str, ...]) -> dict[str, dict]:
    """Medians of each side over `num_steps` steps, and the memory peak of this process before and after them."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(shape, Path(folder))
        loaded_bytes = _peak_bytes()
        steps: dict[str, list] = {side: [] for side in sides}
        for number in range(num_steps):
            for side in sides if number % 2 else sides[::-1]:
                steps[side].append(bench.step(side, number + 1))
        memory = {"peak_bytes": _peak_bytes(), "loaded_bytes": loaded_bytes}
        return {side: _medians(found) | {"memory": memory} for side, found in steps.items()}


def _medians(steps: list[dict]) -> dict:
    found = {}
    for kind in ("seconds", "tokens"):
        found[kind] = {name: statistics.median(step[kind][name] for step in steps) for name in steps[0][kind]}
    found["seconds"]["step"] = statistics.median(sum(step["seconds"].values()) for step in steps)
    return found


def _peak_bytes() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _memory_of(side: str, shape: str) -> dict[str, int]:
    """Of a fresh process that runs one step of one side, since a process's peak only grows."""
    command = [sys.executable, __file__, "--shape", shape, "--steps", "1", "--json", "--only", side]
    document = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(document)["sides"][side]["memory"]


def _document(shape: str, num_steps: int, sides: dict[str, dict]) -> dict:
    found = {
        "shape": shape,
        "num_steps": num_steps,
        "device": torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"cpu, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "sides": sides,
    }
    if len(sides) == 2:
        shared, plain = sides["shared"], sides["plain"]
        found["plain_over_shared"] = {
            kind: {name: plain[kind][name] / shared[kind][name] for name in shared[kind]} for kind in shared
        }
        seconds = shared["seconds"]
        found["record_share"] = seconds["record"] / seconds["step"]
    return found


def _show(found: dict, config_text: str) -> None:
    console = Console(width=100, highlight=False)
    shared, plain, ratio = found["sides"]["shared"], found["sides"]["plain"], found["plain_over_shared"]
    table = Table(title=f"{config_text}\n{found['device']}, torch {found['torch']}", title_justify="left")
    table.add_column(f"median of {found['num_steps']} steps")
    for name in ("shared", "plain", "plain / shared"):
        table.add_column(name, justify="right")
    for stage in (*STAGES, "step"):
        row = [f"{side['seconds'][stage]:.4f} s" for side in (shared, plain)]
        times = f"{ratio['seconds'][stage]:.2f}"
        table.add_row("whole step" if stage == "step" else stage, *row, times, end_section=stage in ("record", "step"))
    for name, label in (
        ("prefilled", "prompt tokens prefilled"),
        ("decoded", "tokens decoded"),
        ("update_forward", "tokens of the update's forward"),
    ):
        row = [f"{side['tokens'][name]:,.0f}" for side in (shared, plain)]
        table.add_row(label, *row, f"{ratio['tokens'][name]:.2f}", end_section=name == "update_forward")
    for name, label in (("peak_bytes", "peak memory"), ("loaded_bytes", "peak of loading alone")):
        row = [f"{side['memory'][name] / 2**20:,.0f} MiB" for side in (shared, plain)]
        table.add_row(label, *row, f"{ratio['memory'][name]:.2f}")
    console.print(table)
    seconds = shared["seconds"]
    console.print(f"The record takes {1000 * seconds['record']:.1f} ms, {found['record_share']:.1%} of a step.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("recipe", "long"), default="recipe")
    parser.add_argument("--steps", type=int, default=5, help="steps of each side, whose median is shown (5)")
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")
    parser.add_argument("--only", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"--steps {args.steps}: at least 1 is needed")
    # first, while this process is small: on Linux a child's peak starts at its parent's
    memory = {} if args.only else {side: {"memory": _memory_of(side, args.shape)} for side in SIDES}
    sides = measure(args.shape, args.steps, (args.only,) if args.only else SIDES)
    sides = {side: found | memory.get(side, {}) for side, found in sides.items()}
    found = _document(args.shape, args.steps, sides)
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        _show(found, TITLES[args.shape])


TITLES = {
    "recipe": "recipes/cat_and_dog.toml",
    "long": "1 prompt of about 1,000 tokens, 56 answers of at most 20, a random Qwen2.5-VL of 4 layers",
}

if __name__ == "__main__":
    main()

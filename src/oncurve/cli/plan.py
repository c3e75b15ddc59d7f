"""Print what a configuration means before anything runs: prompts, answers, groups, tokens, memory.

oncurve plan recipes/pr1.toml
"""

import argparse
import json
from pathlib import Path

TAKES_OVERRIDES = True
BYTES_PER_WEIGHT = 4  # float32, whatever the dtype of the computation
ACTIVATIONS_PER_LAYER = 34  # values kept per token and hidden unit for the backward (arXiv 2205.05198 eq. 1, in values)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="a TOML file, such as recipes/pr1.toml")
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")


def run(args: argparse.Namespace) -> int:
    from oncurve.config.loader import load
    from oncurve.config.schema import TrainConfig

    config = load(args.config, args.overrides, TrainConfig)
    found = plan(config)
    if args.json:
        print(json.dumps(found))
        return 0
    from rich.console import Console

    console = Console()
    for label, text in _lines(found):
        console.print(f"{label:<10}{text}", highlight=False, markup=False, soft_wrap=True)
    return 0


def plan(config) -> dict:
    """What `config` means, from its numbers, its model and the first step's prompts. Memory is an estimate."""
    from oncurve.groups.planner import Planner
    from oncurve.policy.load import load_policy
    from oncurve.tasks.sets import load_tasks

    tasks = load_tasks(config.data)
    policy = load_policy(config.model, seed=config.seed)
    s = config.sampling
    requests = Planner(tasks, config).plan(1)
    prompts = [policy.encode(request.task, s.max_new_tokens) for request in requests]
    answer_tokens = s.answers_per_prompt * s.max_new_tokens
    tokens_shared = sum(len(prompt) + answer_tokens for prompt in prompts)
    text = policy.model.config.get_text_config()
    weights = sum(p.numel() for p in policy.model.parameters())
    trained = sum(p.numel() for p in policy.model.parameters() if p.requires_grad)
    in_flight = min(config.micro_batch_tokens, tokens_shared)
    predicted = in_flight * answer_tokens * len(prompts) // tokens_shared
    kept = ACTIVATIONS_PER_LAYER * text.num_hidden_layers
    if config.model.gradient_checkpointing:
        kept = text.num_hidden_layers + ACTIVATIONS_PER_LAYER  # every layer's input, and one layer as it runs again
    activations = in_flight * text.hidden_size * kept
    copies = 1 + (config.objective.kl.beta > 0 and not policy.has_adapter)  # an adapter's base is its own reference
    held = copies * weights + 3 * trained  # gradients, AdamW's two moments
    return {
        "prompts_per_step": s.prompts_per_step,
        "answers_per_step": config.answers_per_step,
        "groups_per_step": s.prompts_per_step * s.groups_per_prompt,
        "group_size": s.answers_per_group,
        "group_sizes": config.group_sizes,
        "prompts_per_update": config.prompts_per_update,
        "answers_per_update": config.answers_per_step * config.accumulate_steps,
        "num_steps": config.num_steps,
        "num_updates": config.num_steps // config.accumulate_steps,
        "passes": config.objective.passes,
        "mini_batches": config.objective.mini_batches,
        "num_tasks": len(tasks),
        "passes_over_data": config.num_steps * s.prompts_per_step / len(tasks),
        "prompt_tokens": sum(map(len, prompts)) / len(prompts),
        "max_new_tokens": s.max_new_tokens,
        "tokens_plain": sum(s.answers_per_prompt * len(prompt) + answer_tokens for prompt in prompts),
        "tokens_shared": tokens_shared,
        "shared_prefix": policy.shared_prefix,
        "model_parameters": weights,
        "trained_parameters": trained,
        "memory_bytes_estimate": BYTES_PER_WEIGHT * (held + activations + 3 * predicted * text.vocab_size),
    }


def _lines(found: dict):
    yield (
        "a step",
        f"{_count(found['prompts_per_step'], 'prompt')} x {found['answers_per_step'] // found['prompts_per_step']} answers "
        f"= {found['answers_per_step']} answers, in {_count(found['groups_per_step'], 'group')} of {found['group_sizes']}",
    )
    yield (
        "an update",
        f"{_count(found['prompts_per_update'], 'prompt')}, {found['answers_per_update']} answers, "
        f"{_count(found['passes'], 'pass', 'passes')} of {_count(found['mini_batches'], 'optimizer step')}",
    )
    yield (
        "the run",
        (
            f"{found['num_steps']:,} steps, {found['num_updates']:,} updates, {found['passes_over_data']:.2f} passes over "
            f"{found['num_tasks']:,} tasks"
        ),
    )
    ratio = found["tokens_plain"] / found["tokens_shared"]
    yield (
        "tokens",
        (
            f"prompts of {found['prompt_tokens']:.0f}, answers of at most {found['max_new_tokens']}: a step's forward runs "
            f"{found['tokens_shared']:,} tokens"
        ),
    )
    yield "", f"with one row an answer it would run {found['tokens_plain']:,}, {ratio:.1f} times as many"
    if not found["shared_prefix"]:
        yield "", "this model can't share a prefix, so the larger number applies"
    yield (
        "memory",
        f"about {found['memory_bytes_estimate'] / 2**30:.2f} GiB for {found['model_parameters']:,} weights (an estimate)",
    )


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"

"""A policy as a folder that transformers and vLLM load by themselves."""

import shutil
from pathlib import Path

from transformers import GenerationConfig

from oncurve.config.schema import ModelConfig
from oncurve.policy.load import ADAPTER, ADAPTER_WEIGHTS, load_policy


def export_model(source: Path, folder: Path, *, max_new_tokens: int, merge_adapter: bool) -> str:
    """Write the model that a checkpoint holds: weights, processor, chat template and generation config.

    Returns `weights`, `merged` (an adapter into its base) or `adapter` (as it is, in peft's layout, which names its base).
    The generation config decodes as Oncurve's evaluation does: greedily, with the same end and banned tokens. What the
    base model's own added, such as a repetition penalty, was not part of training and is left out.
    """
    policy = load_policy(ModelConfig(path=str(source), device="cpu"))
    generation = GenerationConfig(
        bos_token_id=policy.model.generation_config.bos_token_id,
        eos_token_id=sorted(policy.eos_ids),
        pad_token_id=policy.tokenizer.pad_token_id,
        suppress_tokens=policy.banned_ids.tolist() or None,
        max_new_tokens=max_new_tokens,
        do_sample=False,
    )
    has_adapter = (source / ADAPTER).is_file()
    if has_adapter and not merge_adapter:
        for name in (ADAPTER, ADAPTER_WEIGHTS):
            shutil.copy(source / name, folder)
    else:
        policy.model.generation_config = generation
        policy.model.save_pretrained(folder)
    policy.processor.save_pretrained(folder)
    generation.save_pretrained(folder)
    return ("merged" if merge_adapter else "adapter") if has_adapter else "weights"

"""A policy as a folder that transformers and vLLM load by themselves."""

from pathlib import Path

from transformers import GenerationConfig

from oncurve.policy.policy import Policy


def export_model(policy: Policy, folder: Path, *, max_new_tokens: int, merge_adapter: bool) -> bool:
    """Write weights, processor, chat template and generation config; returns whether an adapter was merged.

    The generation config decodes as Oncurve's evaluation does: greedily, with the same end and banned tokens. What the
    base model's own added, such as a repetition penalty, was not part of training and is left out.
    """
    model, merged = policy.model, merge_adapter and hasattr(policy.model, "merge_and_unload")
    if merged:
        model = model.merge_and_unload()
    generation = GenerationConfig(
        bos_token_id=model.generation_config.bos_token_id,
        eos_token_id=sorted(policy.eos_ids),
        pad_token_id=policy.tokenizer.pad_token_id,
        suppress_tokens=policy.banned_ids.tolist() or None,
        max_new_tokens=max_new_tokens,
        do_sample=False,
    )
    model.generation_config = generation
    model.save_pretrained(folder)
    policy.processor.save_pretrained(folder)
    generation.save_pretrained(folder)
    return merged

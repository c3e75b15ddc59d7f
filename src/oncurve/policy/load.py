"""Load a policy: the built-in model, a folder (also a run's, a checkpoint's or an adapter's), or a hub id."""

import json
import re
from difflib import get_close_matches
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.utils import is_torchvision_available, logging

from oncurve.config.schema import ModelConfig
from oncurve.errors import ModelError
from oncurve.policy.families import Family
from oncurve.policy.policy import Policy
from oncurve.policy.tiny import build_untrained

ADAPTER, ADAPTER_WEIGHTS, PEFT_PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
BUILTIN = {"builtin:tiny": Path(__file__).parent / "builtin" / "tiny"}
UNTRAINED = "builtin:untrained"
ANSWER_MARK = re.compile(r"box|ref|quad|loc|point|think|tool|answer", re.IGNORECASE)
"""Special tokens of these names are part of answers in some families (Qwen-VL's `<|box_start|>`) and stay allowed."""


def load_policy(config: ModelConfig, *, seed: int = 0) -> Policy:
    """The policy on its device, its weights in float32, computing in `config.dtype`, without dropout.

    A folder that holds an adapter gives its base with the adapter merged in; `config.lora` puts a new one beside that.
    `seed` draws the weights of `builtin:untrained` and of new adapters, and does nothing else. Raises `ModelError` for
    a path that is no model and no hub id, and for a model without chat template.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    device = _device(config.device)
    if config.path == UNTRAINED:
        model, processor = build_untrained(seed)
    else:
        model, processor = _load(_source(config.path), config.attention)
    model = model.to(device).eval()
    if config.lora:
        _add_adapter(model, config, seed)
    if config.gradient_checkpointing:
        if not model.supports_gradient_checkpointing:
            raise ModelError(
                f"model {config.path}: {model.config.model_type} has no gradient checkpointing in transformers; "
                "set model.gradient_checkpointing = false and lower micro_batch_tokens instead"
            )
        model.gradient_checkpointing_enable()
    if not getattr(processor, "chat_template", None):
        raise ModelError(
            f"model {config.path}: it has no chat template; save one as chat_template.jinja beside its weights"
        )
    tokenizer = getattr(processor, "tokenizer", processor)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    eos_ids = _eos_ids(model, tokenizer)
    return Policy(
        model,
        processor,
        Family.of(model.config),
        eos_ids=eos_ids,
        banned_ids=_banned_ids(model, tokenizer, eos_ids),
        compute_dtype=getattr(torch, config.dtype),
    )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and torch.device(name).index not in (None, *range(torch.cuda.device_count())):
        raise ModelError(f"model.device {name}: there are {torch.cuda.device_count()} CUDA devices; use auto or cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f"model.device {name}: this machine has no CUDA device that torch can use; use auto or cpu")
    return torch.device(name)


def _add_adapter(model, config: ModelConfig, seed: int) -> None:
    """Adapters on the linear layers of a model, which is frozen. They start as nothing: B is 0, A drawn from `seed`."""
    import peft

    targets: str | list[str] = config.lora.targets
    if targets == "language":
        head, decoder = model.get_output_embeddings(), set(model.get_decoder().modules())
        linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
        targets = [name for name, module in linear.items() if module in decoder and module is not head]
    torch.manual_seed(seed)
    model.add_adapter(
        peft.LoraConfig(
            r=config.lora.rank,
            lora_alpha=config.lora.alpha,
            use_rslora=config.lora.rslora,
            target_modules=targets,
        )
    )
    base = Path(_source(config.path))
    named = str(base.resolve()) if base.exists() and config.path not in BUILTIN else config.path
    model.peft_config["default"].base_model_name_or_path = named


def save_model(policy: Policy, folder: Path) -> None:
    """Weights and processor in Hugging Face's layout; of a policy with an adapter, the adapter in peft's, naming its base."""
    if policy.has_adapter:
        weights = {PEFT_PREFIX + name: value.contiguous() for name, value in _adapter(policy).items()}
        policy.model.peft_config["default"].save_pretrained(folder)
        save_file(weights, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
        return
    policy.model.save_pretrained(folder)
    policy.processor.save_pretrained(folder)


def _adapter(policy: Policy) -> dict[str, torch.Tensor]:
    import peft

    return peft.get_peft_model_state_dict(policy.model, save_embedding_layers=False)


def load_weights(policy: Policy, folder: Path) -> None:
    """The weights that `save_model` wrote, into the policy's own model; the reference stays as it is."""
    if policy.has_adapter:
        import peft

        base, present = _base_of(folder), policy.model.peft_config["default"].base_model_name_or_path
        if base != present:
            raise ModelError(
                f"{folder} is an adapter to {base}, and model.path now leads to {present}; put the base back, or name its "
                f"present place as base_model_name_or_path in {folder / ADAPTER} if it only moved"
            )
        saved = {k.removeprefix(PEFT_PREFIX): v for k, v in load_file(folder / ADAPTER_WEIGHTS).items()}
        if {name: v.shape for name, v in saved.items()} != {name: v.shape for name, v in _adapter(policy).items()}:
            raise ModelError(f"{folder} holds another adapter than this model has; keep [model.lora] as it was")
        peft.set_peft_model_state_dict(policy.model, saved)
        return
    saved = type(policy.model).from_pretrained(folder, dtype=policy.model.dtype)
    policy.model.load_state_dict(saved.state_dict())


def _source(path: str) -> str:
    """Where the model is: the newest checkpoint of a run, a checkpoint's `model`, the folder itself, or a hub id."""
    if path.startswith("builtin:"):
        if path not in BUILTIN:
            raise ModelError(f"model {path}: no such built-in model; there are {', '.join([*BUILTIN, UNTRAINED])}")
        return str(BUILTIN[path])
    folder = Path(path)
    if not folder.exists():
        if re.fullmatch(r"[\w.-]+/[\w.-]+", path) and not folder.parent.exists():
            return path
        siblings = [str(sibling) for sibling in folder.parent.glob("*/")] + [*BUILTIN, UNTRAINED]
        close = get_close_matches(path, siblings, 1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise ModelError(
            f"model {path}: there is no such folder. {meant}Allowed: builtin:tiny, a run's or a model's folder, or a hub id "
            "(owner/name, where no folder is called owner)"
        )
    newest = sorted(folder.glob("checkpoints/step-*/model"))[-1:]
    for candidate in [*newest, folder / "model", folder]:
        if _is_model(candidate):
            return str(candidate)
    raise ModelError(
        f"model {path}: neither a model's folder (config.json with a model_type) nor a run with a checkpoint in it; "
        "a run writes its first checkpoint after checkpoint.every_steps steps and at its end"
    )


def _is_model(folder: Path) -> bool:
    config = folder / "config.json"
    return (folder / ADAPTER).is_file() or (config.is_file() and '"model_type"' in config.read_text(encoding="utf-8"))


def _load(source: str, attention: str):
    if (Path(source) / ADAPTER).is_file():
        return _load_merged(Path(source), attention)
    try:
        config = AutoConfig.from_pretrained(source)
        sees = hasattr(config, "vision_config")
        auto = AutoModelForImageTextToText if sees else AutoModelForCausalLM
        model = auto.from_pretrained(source, dtype=torch.float32, attn_implementation=attention)
        loader = _processor_class(config) if sees else AutoTokenizer
        processor = loader.from_pretrained(source)
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(f"model {source}: it can't be loaded from there or from the hub: {error}") from error
    return model, processor


def _base_of(folder: Path) -> str:
    return json.loads((folder / ADAPTER).read_bytes()).get("base_model_name_or_path") or ""


def _load_merged(folder: Path, attention: str):
    import peft

    base = _base_of(folder)
    try:
        model, processor = _load(_source(base), attention)
        merged = peft.PeftModel.from_pretrained(model, folder).merge_and_unload()
        return merged.requires_grad_(True), processor
    except (ModelError, ValueError, RuntimeError) as error:
        raise ModelError(
            f"model {folder}: an adapter to {base or 'no named model'}, which can't be put together: {error}\n"
            f"If the base has moved, name its place as base_model_name_or_path in {folder / ADAPTER}"
        ) from error


def _processor_class(config):
    """The family's processor; without torchvision, which only videos need, its image and text half."""
    full = PROCESSOR_MAPPING.get(type(config), None)
    if full is None or is_torchvision_available() or "video_processor" not in full.get_attributes():
        return AutoProcessor

    class ImagesOnly(full):
        video_processor = SimpleNamespace(num_frames=1, fps=1)  # some chat templates read these

        @classmethod
        def get_attributes(cls):
            return [name for name in super().get_attributes() if name != "video_processor"]

        @classmethod
        def _get_arguments_from_pretrained(cls, *args, **kwargs):
            return [*super()._get_arguments_from_pretrained(*args, **kwargs), None]

    ImagesOnly.__name__ = full.__name__  # it is written into a saved processor_config.json
    return ImagesOnly


def _eos_ids(model, tokenizer) -> frozenset[int]:
    """Every token that ends an answer, by the generation config and by the tokenizer."""
    named = model.generation_config.eos_token_id
    named = named if isinstance(named, list) else [named]
    return frozenset(token for token in [*named, tokenizer.eos_token_id] if token is not None)


def _banned_ids(model, tokenizer, eos_ids: frozenset[int]) -> set[int]:
    """Structural tokens, which no answer may hold: image tokens, roles, padding; and ids beyond the tokenizer's."""
    config = model.config
    banned = {
        token
        for name, token in vars(config).items()
        if name.endswith(("_token_id", "_token_index")) and isinstance(token, int)
    }
    added = tokenizer.added_tokens_decoder.items()
    banned |= {
        token for token, added_token in added if added_token.special and not ANSWER_MARK.search(added_token.content)
    }
    beyond = range(len(tokenizer), config.get_text_config().vocab_size)
    return {token for token in banned if token >= 0} - eos_ids | set(beyond)

"""TRL's side of `bench/peers.py`, in its environment: GRPOTrainer on the same work. One step for each line on stdin."""

import json
import sys
import tempfile
import time

import torch
import transformers
import trl
import workload
from datasets import Dataset
from memory import peak_bytes, present_bytes
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

AFTER_IMPORTS = present_bytes()
OUT = sys.stdout
sys.stdout = sys.stderr  # the trainer prints its logs


def answer(**found) -> None:
    print(json.dumps({**found, "memory_bytes": peak_bytes() - AFTER_IMPORTS}), file=OUT, flush=True)


def reward(completions, truth, **_) -> list[float]:
    return [workload.reward(completion[0]["content"], box) for completion, box in zip(completions, truth, strict=True)]


class InTurn(TrainerCallback):
    """Begins a step when it is asked for, and answers with its seconds once the trainer has come to rest.

    After a step the trainer logs and decodes the images of the next one. That does not count as the step's, and the
    other side must not begin before it is over.
    """

    seconds: float | None = None

    def on_step_begin(self, *_, **__):
        self.tell()
        if not sys.stdin.readline():
            raise SystemExit
        self.begin = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.seconds = time.perf_counter() - self.begin

    def on_train_end(self, *_, **__):
        self.tell()

    def tell(self):
        if self.seconds is not None:
            answer(seconds=self.seconds)
        self.seconds = None


def main() -> None:
    shape = json.loads(sys.stdin.readline())["shape"]
    torch.set_num_threads(shape["threads"])

    def rows():
        for i in range(shape["steps"] + 2):
            image, box = workload.draw(i, shape["image_tokens"] or (1, 1))
            text = workload.ASK if shape["image_tokens"] else workload.ASK_IN_TEXT
            row = {"prompt": [{"role": "user", "content": text}], "truth": box}
            yield {**row, "image": image} if shape["image_tokens"] else row

    folder, model = tempfile.mkdtemp(), workload.build_model()
    if shape["beta"]:  # the trainer loads its reference from where the model says that it is
        model.save_pretrained(folder)
        model.config._name_or_path = folder
    args = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=shape["peer_micro_batch"],
        gradient_accumulation_steps=shape["answers"] // shape["peer_micro_batch"],
        num_generations=shape["answers"],
        max_completion_length=shape["new_tokens"],
        generation_kwargs={"min_new_tokens": shape["new_tokens"]},
        max_steps=shape["steps"],
        learning_rate=1e-5,
        beta=shape["beta"],
        loss_type="grpo",
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=workload.build_processor(),
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_generator(rows),
        callbacks=[InTurn()],
    )
    answer(trl=trl.__version__, torch=torch.__version__, transformers=transformers.__version__)
    trainer.train()


if __name__ == "__main__":
    main()

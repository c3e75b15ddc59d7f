"""Make a warm-up run's model the built-in one.

    oncurve sft recipes/warmup.toml && python tools/ship_tiny.py runs/warmup

Copies weights, tokenizer and processor from the run's last checkpoint and writes the model card from its record.
"""

import json
import shutil
import sys
from pathlib import Path

from oncurve.record.checkpoint import latest
from oncurve.record.reader import RunReader

OUT = Path(__file__).parent.parent / "src/oncurve/policy/builtin/tiny"

CARD = """\
---
license: apache-2.0
pipeline_tag: image-text-to-text
---

# The built-in tiny model

An Idefics3 of {parameters:,} parameters (64 px images, 8 px patches, 3 + 3 layers) that boxes what a phrase names:
`box the left dog` -> `<box>0.21,0.31,0.59,0.69</box>`. It exists so that a whole GRPO run can be followed on a laptop;
it knows the {names} sprites of Oncurve's scenes and nothing else.

- **Command**: `{command}` (seed {seed}, torch {torch}), then `python tools/ship_tiny.py RUN`
- **Data**: Oncurve's own scenes, split `train`, labels drawn loosely (each side up to {looseness:.0%} too far out);
  sprites from Noto Emoji
- **Training**: {updates:,} updates of {batch} pictures; coordinates softened over neighbours (deviation {soften:g} steps)
- **Held out** ({tasks} scenes of split `heldout`, greedy): mean IoU {iou:.3f}, Acc@0.5 {acc:.3f}, valid format {valid:.3f}.
  Loose labels alone hold a perfect imitator to about 0.6.
"""


def main(run: Path) -> None:
    reader, checkpoint = RunReader(run), latest(run)
    found = [row for row in reader.metrics() if "eval/mean_iou/mean" in row][-1]
    shutil.rmtree(OUT, ignore_errors=True)
    shutil.copytree(checkpoint.folder / "model", OUT)

    from safetensors import safe_open

    from oncurve.tasks.scenes import names

    with safe_open(OUT / "model.safetensors", "pt") as weights:
        parameters = sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118
    card = CARD.format(
        parameters=parameters,
        names=len(names()),
        command=reader.info["command"],
        seed=reader.config["seed"],
        torch=reader.info["versions"]["torch"],
        looseness=reader.config["stages"][-1]["looseness"],
        updates=checkpoint.step,
        batch=reader.config["batch_size"],
        soften=reader.config["soften_std"],
        tasks=found["eval/accuracy/num_tasks"],
        iou=found["eval/mean_iou/mean"],
        acc=found["eval/accuracy/mean"],
        valid=found["eval/heldout/valid_format"],
    )
    (OUT / "README.md").write_text(card, encoding="utf-8")
    print(json.dumps({"bytes": (OUT / "model.safetensors").stat().st_size, "mean_iou": found["eval/mean_iou/mean"]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

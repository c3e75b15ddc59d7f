"""How to put a reward together: format and similarity in several weights, gated against added, IoU against its variants.

    python bench/reward_mix.py                                # all arms, five seeds, 40 steps; about an hour on two cores
    python bench/reward_mix.py --steps 20 --seeds 3           # what docs/results/reward_mix.json holds; about ten minutes

Runs as in `bench/groups.py` but for the reward. The held-out measures are the same for all: mean IoU, Acc@0.75 and valid format
of greedy answers. Writes docs/results/reward_mix.json and docs/img/reward_mix.png. Finished runs are kept as lines of
runs/bench-reward-mix/finished.jsonl: stop it and start it again.
"""

from arms import HERE, parser, study


def similarity(name: str = "iou", power: float = 1.0, **more: object) -> dict[str, object]:
    return {"type": "grounding", "similarity": name, "power": power, **more}


def part(name: str, weight: float, **more: object) -> dict[str, object]:
    return {"name": name, "weight": weight, "rules": similarity(), **more}


def added(weight: float) -> dict[str, object]:
    """Format and IoU as summands: a malformed answer gets 0, a well-formed one `weight` whatever its box."""
    parts = [part("format", weight, take="format", invalid="zero"), part("iou", 1.0, invalid="zero")]
    return {"type": "compose", "parts": parts}


def gated(weight: float) -> dict[str, object]:
    """The same sum, but a malformed answer is invalid: it gets the lowest score that there is."""
    return {"type": "compose", "parts": [part("format", weight, take="format", gate=1.0), part("iou", 1.0)]}


REWARDS = {
    "iou2": similarity(power=2.0),
    "iou": similarity(),
    "iou4": similarity(power=4.0),
    "iou_half": similarity(power=0.5),
    "giou": similarity("giou"),
    "diou": similarity("diou"),
    "ciou": similarity("ciou"),
    "ciou2": similarity("ciou", 2.0),
    "iou_from_0.5": similarity(threshold=0.5),
    "iou_from_0.75": similarity(threshold=0.75),
    "added_0.1": added(0.1),
    "added_1": added(1.0),
    "added_5": added(5.0),
    "gated_1": gated(1.0),
    "added_1_parts": added(1.0) | {"normalise": "before"},
}
ARMS = {name: {"reward": reward} for name, reward in REWARDS.items()}
PANELS = {
    "power of the IoU": ["iou2", "iou_half", "iou", "iou4"],
    "other similarities": ["iou2", "giou", "diou", "ciou", "ciou2"],
    "thresholds": ["iou2", "iou_from_0.5", "iou_from_0.75"],
    "format as a summand, or as a gate": ["iou2", "added_0.1", "added_1", "added_5", "gated_1", "added_1_parts"],
}

if __name__ == "__main__":
    args = parser(__doc__, ARMS, HERE / "docs/results/reward_mix.json", "runs/bench-reward-mix").parse_args()
    study(args, ARMS, PANELS, {"bench": "python bench/reward_mix.py --json"})

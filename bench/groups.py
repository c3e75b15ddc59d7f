"""Which groups carry a signal: sizes, groups without signal, ladders and curricula, at equal budgets of answers.

    python bench/groups.py                        # all arms, five seeds; about an hour on two cores
    python bench/groups.py --seeds 1 --arms fixed,adaptive

Short runs of `recipes/cat_and_dog.toml` from the built-in model over 320 scenes (three passes), at a constant rate. Held-out
mean IoU (200 scenes, greedy) is compared after as many answers as the shorter of an arm and its baseline has sampled, and as
its mean along the way, seed by seed. Two rewards: `binary` pays 1 for an IoU of at least 0.75 and 0 below, so that half of the
first groups are all wrong; `graded` pays the squared IoU, so that nearly every group has a signal. `conformal` is trl-cgrpo's
rule (bench/conformal.py). Writes docs/results/groups.json and docs/img/groups.png. Finished runs are kept as lines of
runs/bench-groups/finished.jsonl: stop it and start it again.
"""

from arms import HERE, parser, study

BINARY = {"reward": {"type": "grounding", "threshold": 0.75, "power": 1.0}}
GRADED = {"reward": {"type": "grounding", "power": 2.0}}
ADAPTIVE = {"groups.size": {"type": "adaptive", "min": 4, "max": 16}}
BAND = [0.1, 0.9]


def no_signal(**policy: object) -> dict[str, object]:
    return {"groups.no_signal": policy}


ARMS = {
    "fixed": BINARY,
    "adaptive": BINARY | ADAPTIVE,
    "conformal": BINARY | {"program": "bench/conformal.py"},
    "skip": BINARY | no_signal(type="skip"),
    "resample": BINARY | no_signal(type="resample", max_rounds=3),
    "hotter": BINARY | no_signal(type="hotter", max_rounds=2, num_answers=4),
    "reassign": BINARY | no_signal(type="reassign", rest_steps=10),
    "supervise": BINARY | no_signal(type="supervise", weight=0.1),
    "ladder": BINARY | {"sampling.temperatures": [0.7, 0.9, 1.1, 1.3]},
    "easy_first": BINARY | {"curriculum": {"order": "easy_first"}},
    "band": BINARY | {"curriculum": {"band": BAND}},
    "fixed_graded": GRADED,
    "adaptive_graded": GRADED | ADAPTIVE,
}
PANELS = {
    "size of groups": ["fixed", "adaptive", "conformal"],
    "groups without signal": ["fixed", "skip", "resample", "hotter", "reassign", "supervise"],
    "temperatures and order": ["fixed", "ladder", "easy_first", "band"],
    "graded reward": ["fixed_graded", "adaptive_graded"],
}

if __name__ == "__main__":
    out = HERE / "docs/results/groups.json"
    args = parser(__doc__, ARMS, out, "runs/bench-groups").parse_args()
    study(args, ARMS, PANELS, {"bench": "python bench/groups.py --json"})

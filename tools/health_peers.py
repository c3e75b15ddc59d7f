"""What rldoctor and rlwatch say of synthetic runs; `tools/health_study.py --peers PYTHON` runs this under PYTHON.

Needs nothing of Oncurve. rldoctor looks at a whole log, so it is given the run up to 200 steps after the onset; rlwatch is
fed step by step, and what it raised before the onset does not count as found.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import rl_doctor
from rlwatch.config import RLWatchConfig
from rlwatch.detectors import DetectorSuite

NAMES = {
    "reward/total/mean": "reward",
    "groups/no_signal/share": "frac_reward_zero_std",
    "policy/entropy/mean": "entropy",
    "policy/kl_reference/mean": "kl",
    "policy/clip_low/share": "clip_ratio/low_mean",
    "policy/clip_high/share": "clip_ratio/high_mean",
    "policy/grad_norm/before_clip": "grad_norm",
    "answers/length_tokens/mean": "completions/mean_length",
    "answers/truncated/share": "completions/clipped_ratio",
    "reward/part/correct/mean": "rewards/correctness/mean",
    "reward/part/format/mean": "rewards/format/mean",
    "eval/accuracy/mean": "eval/accuracy",
}
RIGHT = {
    "rldoctor": {
        "reward_hacking": {"reward_hacking"},
        "auxiliary_dominates": {"reward_composition"},
        "drift": {"kl_drift"},
        "too_easy": {"advantage_collapse"},
        "too_hard": {"advantage_collapse"},
        "duplicates": {"advantage_collapse"},
        "padding": {"length_pathology"},
        "cap_hit": {"length_pathology"},
        "entropy_collapse": {"entropy_collapse"},
        "gradient_spike": {"gradient_pathology"},
        "gradient_dead": {"gradient_pathology"},
        "step_too_big": {"clip_saturation"},
    },
    "rlwatch": {
        "reward_hacking": {"reward_hacking", "reward_mean_drift"},
        "drift": {"kl_explosion"},
        "entropy_collapse": {"entropy_collapse"},
        "gradient_spike": {"gradient_norm_spike"},
    },
}
"""By tool and flaw, which of the tool's own findings are right; a flaw that is not there is none that the tool looks for."""


def rldoctor(rows: list[dict], group: int) -> list[str]:
    """Findings at warning level or above."""
    by_step: dict[int, dict] = defaultdict(dict)
    for row in rows:
        by_step[row["step"]] |= {NAMES[name]: value for name, value in row.items() if name in NAMES}
    records = [{"step": step, **values} for step, values in sorted(by_step.items())]
    run = rl_doctor.run_from_records(records, config={"num_generations": group, "algorithm": "grpo"})
    found = rl_doctor.diagnose(run).findings
    return [finding.detector for finding in found if finding.severity >= rl_doctor.Severity.WARNING]


def rlwatch(rows: list[dict]) -> list[tuple[int, str]]:
    """Alerts with their steps."""
    suite, alerts = DetectorSuite(RLWatchConfig()), []
    for row in rows:
        if "reward/total/mean" in row:
            alerts += suite.check_step(
                row["step"],
                entropy=row.get("policy/entropy/mean"),
                kl_divergence=row.get("policy/kl_reference/mean"),
                reward_mean=row["reward/total/mean"],
                grad_norm=row.get("policy/grad_norm/before_clip"),
            )
    return [(alert.step, alert.detector) for alert in alerts]


def main(folder: Path, within: int) -> None:
    found: dict = {tool: defaultdict(lambda: {"runs": 0, "found": 0, "looks_for_it": True}) for tool in RIGHT}
    for path in sorted(folder.glob("*.json")):
        case = json.loads(path.read_bytes())
        flaw, onset, rows = case["flaw"], case["onset"], case["rows"]
        group = next(int(row["groups/size/mean"]) for row in rows if "groups/size/mean" in row)
        end = onset + within if onset else rows[-1]["step"]
        before = [row for row in rows if row["step"] <= end]
        said = {"rldoctor": rldoctor(before, group), "rlwatch": [d for s, d in rlwatch(before) if s >= (onset or 0)]}
        for tool, names in said.items():
            entry, right = found[tool][flaw], RIGHT[tool].get(flaw)
            entry["runs"] += 1
            entry["looks_for_it"] = flaw == "healthy" or right is not None
            entry["found"] += bool(names) if flaw == "healthy" else bool(right and right & set(names))
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""Does the doctor cry wolf, and what does it miss? Synthetic runs with and without flaws, and real tiny ones.

make health-study
python tools/health_study.py --runs 40 --out docs/results/health.json
python tools/health_study.py --runs 40 --peers OTHER_VENV/bin/python   # rldoctor and rlwatch on the same runs
python tools/health_study.py --runs 0 --real runs/health               # eight real runs of one to two minutes each
python tools/health_study.py --runs 0 --real runs/health --only hack_midway

A planted flaw counts as found where its verdict was raised within 200 steps of the onset and not before it. Of real runs
the flaw is planted by code around the grader or the sampler, or by the configuration; held-out evaluation stays honest.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

from oncurve.config.health import HealthConfig
from oncurve.monitor.doctor import diagnose
from oncurve.monitor.synthetic import FLAWS, healthy, planted

WITHIN = 200  # steps
REAL_ONSET = 80  # updates, of what begins in mid-run

CONFIG = """
name = "{name}"
num_steps = {steps}
sampling = {{ prompts_per_step = 8, answers_per_prompt = 8, temperature = {temperature}, max_new_tokens = {tokens} }}
objective = {{ kl = {{ beta = {beta} }} }}
optimizer = {{ type = "muon", learning_rate = {rate}, warmup_updates = 10 }}
evaluate = {{ every_steps = 10, num_tasks = 200, num_probes = 0 }}
checkpoint = {{ every_steps = 0 }}
"""
PLAIN = {"steps": 240, "temperature": 1.0, "tokens": 16, "beta": 0.001, "rate": 1e-3}
REAL = {
    "healthy": ({}, ()),
    "hack_from_start": ({}, ("reward_hacking",)),
    "hack_midway": ({}, ("reward_hacking",)),
    "padding": ({"tokens": 32}, ("padding", "reward_hacking", "format")),
    "cold": ({"temperature": 0.02}, ("no_diversity", "duplicates", "too_easy", "too_hard")),
    "high_rate": ({"rate": 0.1}, ("entropy_explosion", "gradient_spike", "format", "drift", "entropy_collapse")),
    "other_sampler": ({}, ("mismatch", "stale_logprobs")),
    "failing_verifier": ({}, ("verifier_broken",)),
}
"""What differs from `PLAIN`, and the verdicts of which one is right."""


def synthetic(num: int) -> dict:
    """Healthy runs with a verdict at warning level or above, and for every flaw how many were found, and how late."""
    alarms = [[v.verdict for v in _verdicts(healthy(seed)) if v.rank] for seed in range(num)]
    found: dict = {
        "runs": num,
        "healthy": {
            "alarms": sum(map(bool, alarms)),
            "by_verdict": dict(Counter(name for run in alarms for name in run)),
        },
    }
    for flaw in FLAWS:
        delays, others = [], Counter()
        for seed in range(num):
            rows, onset = planted(flaw, seed)
            verdicts = _verdicts(rows)
            own = [v.detected_step - onset for v in verdicts if v.verdict == flaw]
            delays += own[:1] if own and 0 <= own[0] <= WITHIN else []
            others.update({v.verdict for v in verdicts if v.rank and v.verdict != flaw})
        delay = {"median": median(delays), "max": max(delays)} if delays else None
        found[flaw] = {"found": len(delays), "delay": delay, "others": dict(others)}
        print(f"{flaw:<20} {len(delays)}/{num}  delay {delay}", file=sys.stderr)
    return found


def _verdicts(rows: list[dict]):
    return diagnose(rows, HealthConfig())


def peers(num: int, python: str) -> dict:
    """What rldoctor and rlwatch say of the same runs; they run under their own interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        for flaw in ("healthy", *FLAWS):
            for seed in range(num):
                rows, onset = (healthy(seed), None) if flaw == "healthy" else planted(flaw, seed)
                path = Path(folder) / f"{flaw}-{seed}.json"
                path.write_text(json.dumps({"flaw": flaw, "onset": onset, "rows": rows}))
        script = Path(__file__).with_name("health_peers.py")
        done = subprocess.run([python, str(script), folder, str(WITHIN)], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(
            f"{python} could not run rldoctor and rlwatch; install both there: pip install rldoctor rlwatch"
        )
    return json.loads(done.stdout)


def real(folder: Path, only: list[str]) -> dict:
    """Train each flawed run in a process of its own, and let the doctor look at it."""
    found = {}
    for name in only or REAL:
        if not (folder / name / "config.json").exists():
            subprocess.run([sys.executable, __file__, "--real", str(folder), "--train", name], check=True)
        rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        verdicts = [v for v in _verdicts(rows) if v.rank]
        right = REAL[name][1]
        good = any(v.verdict in right for v in verdicts) if right else not verdicts
        found[name] = {"expected": right, "ok": good, "verdicts": [asdict(v) for v in verdicts]}
        print(f"{name:<20} {'ok' if good else 'MISSED'}  {[v.verdict for v in verdicts]}", file=sys.stderr)
    return found


def train_with(name: str, folder: Path) -> None:
    """One real run, with its flaw in place."""
    import oncurve.train as loop
    from oncurve.cli.main import main

    class Grader(loop.LocalGrader):
        def grade(self, pairs):
            scores = super().grade(pairs)
            return [flawed(name, *pair, score) for pair, score in zip(pairs, scores, strict=True)]

    class Sampler(loop.LocalSampler):
        def sample(self, requests, *, step, seed):
            hot = [replace(request, temperature=2 * request.temperature) for request in requests]
            return [
                tuple(replace(rollout, temperature=request.temperature) for rollout in rollouts)
                for request, rollouts in zip(requests, super().sample(hot, step=step, seed=seed), strict=True)
            ]

    loop.LocalGrader = Grader
    if name == "other_sampler":
        loop.LocalSampler = Sampler
    config = folder / f"{name}.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(CONFIG.format(name=name, **PLAIN | REAL[name][0]))
    status = main(["train", str(config), f"--runs_folder={folder}", "--no-audit"])  # the audit would refuse some
    if status:
        raise SystemExit(status)


def flawed(name: str, task, rollout, score):
    """The score as a flawed reward gives it: paying for coverage and not for overlap, for length, or failing."""
    late = rollout.policy_version >= REAL_ONSET
    if name == "hack_from_start" or (name == "hack_midway" and late):
        box, truth = score.extracted, task.truth.box
        if score.status != "scored":
            return score
        sides = [max(0.0, min(box[i + 2], truth[i + 2]) - max(box[i], truth[i])) for i in (0, 1)]
        area = (truth[2] - truth[0]) * (truth[3] - truth[1])
        return replace(score, value=min(1.0, sides[0] * sides[1] / area))
    if name == "padding":
        return replace(score, value=score.value + 0.03 * len(rollout.tokens))
    if name == "failing_verifier" and late:
        draw = hashlib.sha256(f"{rollout.task_id} {rollout.index} {rollout.policy_version}".encode()).digest()[0]
        if draw < 26:
            return replace(score, status="error", value=float("nan"), reason="planted")
    return score


def command() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="synthetic runs of every kind (40)")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has rldoctor and rlwatch")
    parser.add_argument(
        "--real", type=Path, metavar="FOLDER", help="train real runs there; those that are there are read"
    )
    parser.add_argument("--only", nargs="*", default=[], choices=REAL, help="these real runs")
    parser.add_argument("--train", choices=REAL, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="write the JSON there too")
    args = parser.parse_args()
    if args.train:
        train_with(args.train, args.real)
        return 0
    found = {"synthetic": synthetic(args.runs)} if args.runs else {}
    if args.peers:
        found["peers"] = peers(args.runs, args.peers)
    if args.real:
        found["real"] = real(args.real, args.only)
    text = json.dumps(found, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(command())

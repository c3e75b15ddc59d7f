"""Fuzz the parsers and verifiers of answers, guided by coverage (atheris).

    python tools/fuzz.py --runs 100000                    # every target, one process each
    python tools/fuzz.py --target box01 --runs 1000000    # one of them
    python tools/fuzz.py --list

A target is a function of a text that raises whatever should never happen. To add one, write a function that returns
`{name: (check, examples)}` and put it into `TARGETS`; the examples are where the mutations begin. A target that fails
prints the text and leaves it in `crash-*` files of the working directory; the exit status is then 1.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

Targets = dict[str, tuple[Callable[[str], None], list[str]]]
MAX_LENGTH = 600  # bytes of a text


def box_dialects() -> Targets:
    """Every dialect of boxes and points through its verifier: any text is scored or invalid, in 0..1, and prints again."""
    from oncurve.geometry.dialects import Found, print_boxes, print_point
    from oncurve.geometry.written import BOX_DIALECTS, POINT_DIALECTS
    from oncurve.truths import BoxesTruth, BoxTruth

    box, size = (0.2, 0.3, 0.6, 0.7), (1000, 500)
    found: Targets = {}
    for name, form in BOX_DIALECTS.items():
        options = {"dialect": name} | ({"model_size": list(size)} if form.space == "pixel_model" else {})
        examples = [print_boxes([Found(box, "cat")], name, size)]
        if form.several:
            examples += [print_boxes([Found(box, "cat")] * 2, name, size), print_boxes([], name)]
            found[name] = verifier("detection", BoxesTruth((box,)), options), examples
        else:
            found[name] = verifier("grounding", BoxTruth(box), options), examples
    for name in POINT_DIALECTS:
        found[name] = verifier("pointing", BoxTruth(box), {"dialect": name}), [print_point((0.4, 0.5), name)]
    return found


def texts() -> Targets:
    """The kinds whose answer is words or numbers, in every format."""
    from oncurve.truths import AnswersTruth, ChoiceTruth, CountTruth, MathTruth, NoTruth, TextTruth

    final = {"plain": "3", "tag": "<answer>3</answer>", "boxed": "so \\boxed{3}", "hash": "so\n#### 3"}
    found: Targets = {"ocr": (verifier("ocr", TextTruth("STOP"), {}), ["STOP", "ST\u200bOP"])}
    for name in ("plain", "tag", "boxed"):
        found[f"counting_{name}"] = verifier("counting", CountTruth(3), {"format": name}), [final[name]]
        letter = final[name].replace("3", "B")
        found[f"choice_{name}"] = verifier("choice", ChoiceTruth("B"), {"format": name}), [letter]
    for name in ("boxed", "hash", "tag"):
        found[f"math_{name}"] = (
            verifier("math", MathTruth("3"), {"format": name}),
            [final[name], "\\boxed{\\frac{6}{2}}"],
        )
    found["short_answer"] = verifier("short_answer", AnswersTruth(("New York",)), {}), ["new york"]
    parts = [{"type": "repetition"}, {"type": "tags"}, {"type": "filler"}, {"type": "language"}]
    parts.append({"type": "process", "sections": ["Plan:", "Answer:"]})
    found["text"] = (
        verifier("text", NoTruth(), {"parts": parts}),
        ["<think>a</think><answer>b</answer>", "Plan:\na\nAnswer:\nb"],
    )
    return found


def reports() -> Targets:
    """Evidence and replies."""
    from oncurve.truths import EvidenceTruth, Region, parse_truth

    seen = {"region": [0.3, 0.1, 0.5, 0.3], "type": "face_region", "description": "head down", "confidence": 0.9}
    report = json.dumps({"observable_evidence": [seen], "mental_state_conclusion": None, "limits": "can't be known"})
    truth = EvidenceTruth((Region((0.3, 0.1, 0.5, 0.3), "face_region", ("down",)),))
    return {
        "evidence": (verifier("evidence", truth, {}), [report]),
        "reply": (verifier("reply", parse_truth("reply", {"evidence": [seen]}), {}), ["Your head is down."]),
    }


TARGETS: list[Callable[[], Targets]] = [box_dialects, texts, reports]


def verifier(kind: str, truth: object, options: dict) -> Callable[[str], None]:
    """A check of one verifier: no exception, status scored or invalid, everything finite, writable as JSON in UTF-8."""
    from oncurve.config.rewards import KIND_RULES
    from oncurve.rewards.kinds import rules_for, verifier_of
    from oncurve.types import Rollout, Task

    task = Task("fuzz", kind, (), truth, options)
    rules, graded_by = rules_for(task, KIND_RULES[kind](type=kind)), verifier_of(kind)
    graded_by.check(task, rules)

    def check(text: str) -> None:
        score = graded_by.grade(task, Rollout("fuzz", 0, (), text, "end", 0, 1.0, 0), rules)
        assert score.status in ("scored", "invalid"), score
        assert math.isfinite(score.value), score
        assert score.status == "scored" or (score.reason and not score.correct), score
        json.dumps([score.parts, score.extracted, score.evidence], allow_nan=False, ensure_ascii=False).encode()

    return check


def all_targets() -> Targets:
    return {name: target for make in TARGETS for name, target in make().items()}


def fuzz(name: str, num_runs: int, seed: int) -> None:
    """Runs one target and ends the process with libFuzzer's status, 0 where nothing failed.

    Nothing of Oncurve may be imported before: atheris instruments modules as they are imported.
    """
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is needed: pip install 'oncurve[dev]' with a Python before 3.13")
    with atheris.instrument_imports(include=["oncurve", "json"]):
        targets = all_targets()
    if name not in targets:
        sys.exit(f"no target {name!r}; there are {', '.join(targets)}")
    check, examples = targets[name]

    def one(data: bytes) -> None:
        try:
            check(data.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            check(data.decode("utf-8", "replace"))

    with tempfile.TemporaryDirectory() as folder:
        for number, example in enumerate(examples):
            (Path(folder) / str(number)).write_text(example)
        options = [f"-runs={num_runs}", f"-seed={seed}", f"-max_len={MAX_LENGTH}", "-verbosity=0", folder]
        atheris.Setup([sys.argv[0], *options], one)
        atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", help="its name; without it every target runs")
    parser.add_argument("--runs", type=int, default=100_000, help="texts a target (default: 100000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    args = parser.parse_args()
    if args.target:
        fuzz(args.target, args.runs, args.seed)
    names = list(all_targets())
    if args.list:
        print("\n".join(names))
        return 0
    failed = []
    for name in names:
        command = [sys.executable, __file__, "--target", name, "--runs", str(args.runs), "--seed", str(args.seed)]
        status = subprocess.run(command).returncode
        print(
            f"{name}: {args.runs} texts, {'nothing found' if status == 0 else f'FAILED (status {status})'}", flush=True
        )
        failed += [name] if status else []
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

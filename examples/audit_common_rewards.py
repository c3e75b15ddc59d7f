"""Audit the four rewards of common_rewards.py, each on three tasks, and print what wins. `--json` prints the rows.

python examples/audit_common_rewards.py
"""

import json
import runpy
import sys
from pathlib import Path

from oncurve.config.rewards import PythonRules
from oncurve.rewards.audit.run import audit
from oncurve.rewards.grader import LocalGrader
from oncurve.truths import parse_truth
from oncurve.types import Message, Task

REWARDS = Path(__file__).with_name("common_rewards.py")
DATABASE = runpy.run_path(str(REWARDS))["DATABASE"]
TASKS = {
    "iou_by_search": (
        "grounding",
        [{"box": [0.2, 0.3, 0.6, 0.7]}, {"box": [0.5, 0.1, 0.9, 0.4]}, {"box": [0.1, 0.6, 0.3, 0.9]}],
    ),
    "substring": ("math", [{"answer": "42"}, {"answer": "7"}, {"answer": "1250"}]),
    "row_sets": (
        "sql",
        [
            {"sql": "SELECT name FROM cats WHERE age < 5"},
            {"sql": "SELECT name, age FROM cats ORDER BY age"},
            {"sql": "SELECT age FROM cats WHERE name = 'Kit'"},
        ],
    ),
    "exit_code": (
        "code",
        [
            {"entry_point": name, "tests": [{"args": [n], "kwargs": {}, "result": by * n} for n in (1, 2, 5)]}
            for name, by in (("double", 2), ("triple", 3), ("negate", -1))
        ],
    ),
}


def findings_of(name: str, *, quick: bool = False, limit: int | None = None) -> list:
    kind, truths = TASKS[name]
    rules = PythonRules(type="python", function=f"{REWARDS}:{name}", timeout_s=4.0)
    options = {"setup": [DATABASE]} if kind == "sql" else {}
    asked = (Message("user", "?"),)
    tasks = [Task(f"{kind}/{i}", kind, asked, parse_truth(kind, truth), options) for i, truth in enumerate(truths)]
    return audit(LocalGrader(rules), rules, tasks, quick=quick, limit=limit)


if __name__ == "__main__":
    found = {name: findings_of(name) for name in TASKS}
    if "--json" in sys.argv:
        print(json.dumps({name: [finding.row() for finding in findings] for name, findings in found.items()}))
    else:
        for name, findings in found.items():
            print(f"\n{name}: {sum(not f.ok for f in findings)} of {sum(f.applies for f in findings)} broken")
            for f in findings:
                if not f.ok:
                    example = " ".join(f.example.text.split())[:70] if f.example else ""
                    print(f"  {f.exploit:<22} {f.num_wrong:>2}/{f.num_attacks:<3} {f.verdict:<22} {example!r}")

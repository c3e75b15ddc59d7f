"""How many answers and tests a second the sandbox runs.

    python bench/sandbox.py [--seconds 10] [--workers 2] [--json]

`isolated_answers`: a box of its own for each answer, from its start to its end. `test_executions`: boxes of 20 tests, whose
program forks a process for each test. `answer_ms` is the median life of a box with one answer, one at a time, and
`answer_cpu_ms` the processor time of it, which a busy machine changes less. `attack_ms` is the sandbox's attack on itself, once
a process.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from oncurve.sandbox.box import Sandbox
from oncurve.sandbox.probes import report

ANSWER = "def answer(request): return {'sum': sum(request['numbers'])}"
TESTS_A_REQUEST = 20
TESTS = """
import os

def answer(request):
    passed = 0
    for _ in range(request["tests"]):
        if (process := os.fork()) == 0:
            close_channel()
            names = {}
            exec(request["code"], names)
            os._exit(names["f"](20) == 6765)
        passed += os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return {"passed": passed}
"""
FIBONACCI = "def f(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a"


def measure(seconds: float, workers: int) -> dict[str, float]:
    begin = time.perf_counter()
    report()
    attack_ms = 1000 * (time.perf_counter() - begin)
    sandbox = Sandbox()

    def isolated() -> int:
        with sandbox.open(ANSWER) as child:
            assert child.ask({"numbers": [1, 2, 3]}, 60.0) == {"sum": 6}
        return 1

    def rate(work: Callable[[], int]) -> float:
        end = time.perf_counter() + seconds

        def until(_worker: int) -> int:
            count = 0
            while time.perf_counter() < end:
                count += work()
            return count

        begin = time.perf_counter()
        with ThreadPoolExecutor(workers) as threads:
            return sum(threads.map(until, range(workers))) / (time.perf_counter() - begin)

    def tests() -> int:
        with sandbox.open(TESTS) as child:
            passed = child.ask({"tests": TESTS_A_REQUEST, "code": FIBONACCI}, 60.0)["passed"]
        assert passed == TESTS_A_REQUEST
        return passed

    lives, cpu = [], sum(os.times()[:4])
    for _ in range(20):
        begin = time.perf_counter()
        isolated()
        lives.append(1000 * (time.perf_counter() - begin))
    cpu = sum(os.times()[:4]) - cpu
    return {
        "isolated_answers_per_s": rate(isolated),
        "test_executions_per_s": rate(tests),
        "answer_ms": statistics.median(lives),
        "answer_cpu_ms": 1000 * cpu / len(lives),
        "attack_ms": attack_ms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = {name: round(value, 1) for name, value in measure(args.seconds, args.workers).items()}
    found |= {"workers": args.workers, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps(found) if args.json else "\n".join(f"{name:24}{value}" for name, value in found.items()))


if __name__ == "__main__":
    main()

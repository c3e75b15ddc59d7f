"""TRL and Oncurve on the same work, in turn: seconds a step, peak memory, and the parts of a step alone.

    python3 -m venv peer
    peer/bin/pip install torch==2.13.0 trl==1.16.0 'transformers==5.19.0' accelerate datasets pillow
    python bench/peers.py --peer-python peer/bin/python

Same weights, image, prompt, answers, new tokens, reward, dtype (float32) and threads. Each side is a process of its own;
they take steps in turn while the other waits, after one that does not count. Memory is a process's peak over what it
held after its imports. The peer runs at its best micro-batch, 8 answers, and Oncurve at its default.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
SHAPES = {
    "image, 56 answers": {"image_tokens": (36, 28), "answers": 56, "beta": 0.0},
    "image, 56 answers, reference": {"image_tokens": (36, 28), "answers": 56, "beta": 0.04},
    "image, 8 answers": {"image_tokens": (36, 28), "answers": 8, "beta": 0.0},
    "16-token text, 56 answers": {"image_tokens": None, "answers": 56, "beta": 0.0},
}
MARKS = ("<!-- bench/peers.py -->", "<!-- end -->")
MAIN = "image, 56 answers"
COMMON = {"new_tokens": 20, "peer_micro_batch": 8, "micro_batch_tokens": 16_384}


class Side:
    """A process that works when it is asked to."""

    def __init__(self, python: str, script: str, shape: dict):
        self.name, threads = script.removeprefix("side_").removesuffix(".py"), str(shape["threads"])
        self.process = subprocess.Popen(
            [python, str(HERE / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ
            | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"},
        )
        self.about = self.ask(shape=shape)

    def ask(self, **request) -> dict:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                f"{self.process.args[1]} ended with status {self.process.wait()}; its messages stand above"
            )
        answer = json.loads(line)
        if "seconds" in answer:
            print(f"  {self.name} {request['do']} {request['number']}: {answer['seconds']:.2f} s", file=sys.stderr)
        return answer

    def close(self) -> None:
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait()


def compare(peer_python: str, shape: dict, repeats: int) -> dict:
    """Whole steps of both sides, in turn; the first of each does not count."""
    sides = {
        "peer": Side(peer_python, "side_trl.py", shape),
        "ours": Side(sys.executable, "side_oncurve.py", shape),
    }
    answers: dict[str, list[dict]] = {name: [] for name in sides}
    for number in range(repeats + 1):
        for name, side in sides.items() if number % 2 else reversed(sides.items()):
            answers[name].append(side.ask(do="step", number=number))
    found = {name: summary(answers[name]) for name in sides}
    found["ours"]["stages"] = {
        stage: statistics.median(one["stages"][stage] for one in answers["ours"][1:])
        for stage in answers["ours"][0]["stages"]
    }
    for side in sides.values():
        side.close()
    return {
        "shape": shape,
        **found,
        "step_ratio": found["peer"]["median_seconds"] / found["ours"]["median_seconds"],
        "memory_ratio": found["ours"]["peak_bytes"] / found["peer"]["peak_bytes"],
        "versions": {name: side.about for name, side in sides.items()},
    }


def summary(answers: list[dict]) -> dict:
    seconds = [one["seconds"] for one in answers[1:]]
    return {
        "median_seconds": statistics.median(seconds),
        "seconds": seconds,
        "peak_bytes": max(one["memory_bytes"] for one in answers),
    }


def parts_alone(shape: dict, repeats: int) -> dict:
    """Sampling against `generate`, and the update against plain rows, in turn in one process of ours."""
    side = Side(sys.executable, "side_oncurve.py", shape)
    side.ask(do="step", number=0)
    tasks = ("sample", "generate", "update", "plain_update", "arithmetic")
    answers: dict[str, list[dict]] = {name: [] for name in tasks}
    for number in range(repeats + 1):
        for name in tasks:
            if name != "arithmetic":
                answers[name].append(side.ask(do=name, number=number))
        answers["arithmetic"].append(side.ask(do="arithmetic", number=number))
    side.close()
    times = {name: summary(answers[name])["median_seconds"] for name in tasks[:-1]}
    last = answers["update"][-1]
    token_ratio = last["tokens_plain"] / last["tokens"]
    work = answers["arithmetic"][-1]
    products = statistics.median(one["product_seconds"] for one in answers["arithmetic"][1:])
    achieved = (work["linear"] + work["attention"]) / times["update"]
    return {
        "sampling": {"ours_seconds": times["sample"], "generate_seconds": times["generate"]},
        "sampling_ratio": times["generate"] / times["sample"],
        "update": {
            "ours_seconds": times["update"],
            "plain_seconds": times["plain_update"],
            "tokens": last["tokens"],
            "tokens_plain": last["tokens_plain"],
            "ratio": times["plain_update"] / times["update"],
            "token_ratio": token_ratio,
        },
        "update_share_of_token_ratio": times["plain_update"] / times["update"] / token_ratio,
        "arithmetic": {
            "useful_flop": work["linear"] + work["attention"],
            "linear_flop": work["linear"],
            "achieved_flops": achieved,
            "product_flops": work["linear"] / products,
            "share": achieved * products / work["linear"],
        },
    }


HEADER = ("work", "TRL", "Oncurve", "times faster", "TRL", "Oncurve", "memory")


def lines(found: dict) -> list[tuple[str, ...]]:
    """Of every shape: seconds a step of both sides and their ratio, peak memory of both and its ratio."""
    rows = []
    for name, one in found["steps"].items():
        seconds = [f"{one[side]['median_seconds']:.2f} s" for side in ("peer", "ours")]
        memory = [f"{one[side]['peak_bytes'] / 2**20:,.0f} MiB" for side in ("peer", "ours")]
        rows.append((name, *seconds, f"{one['step_ratio']:.1f}", *memory, f"1/{1 / one['memory_ratio']:.1f}"))
    return rows


def alone(found: dict) -> list[tuple[str, str]]:
    sampling, update, work = found["sampling"], found["update"], found["arithmetic"]
    return [
        (
            "sampling alone",
            f"{sampling['ours_seconds']:.2f} s; transformers' `generate` {sampling['generate_seconds']:.2f} s: "
            f"{found['sampling_ratio']:.1f} times",
        ),
        (
            "update alone",
            f"{update['ours_seconds']:.2f} s; plain rows {update['plain_seconds']:.2f} s: {update['ratio']:.1f} times, "
            f"{found['update_share_of_token_ratio']:.0%} of the token ratio {update['token_ratio']:.1f}",
        ),
        (
            "arithmetic",
            f"{work['achieved_flops'] / 1e9:.0f} useful GFLOP/s of the update; plain products of its sizes "
            f"{work['product_flops'] / 1e9:.0f}: {work['share']:.0%}",
        ),
    ]


def title(found: dict) -> str:
    return f"Medians of {found['repeats']} steps; {found['machine']}; load at the end {found['load_at_end'][0]:.1f}"


def show(found: dict) -> None:
    console = Console(width=100, highlight=False)
    table = Table(title=title(found), title_justify="left")
    for name in HEADER:
        table.add_column(name, justify="left" if name == "work" else "right")
    for row in lines(found):
        table.add_row(*row)
    console.print(table)
    for name, text in alone(found):
        console.print(f"{name:16} {text}")


def write_page(found: dict) -> None:
    """Put the figures between the marks in docs/performance.md."""
    page = HERE.parent / "docs/performance.md"
    before, rest = page.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    table = "\n".join("| " + " | ".join(row) + " |" for row in (HEADER, ("---",) * len(HEADER), *lines(found)))
    parts = "\n".join(f"- {name}: {text}" for name, text in alone(found))
    page.write_text(f"{before}{MARKS[0]}\n{title(found)}.\n\n{table}\n\n{parts}\n{MARKS[1]}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="peer/bin/python", help="of the peer's environment (peer/bin/python)")
    parser.add_argument("--repeats", type=int, default=3, help="steps of each side that count (3)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")
    parser.add_argument("--out", type=Path, help="write the document here, and the figures into docs/performance.md")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error(f"--repeats {args.repeats}: at least 1 is needed")
    common = COMMON | {"threads": args.threads, "steps": args.repeats + 1}
    parts = parts_alone(common | SHAPES[MAIN], args.repeats)
    steps = {name: compare(args.peer_python, common | shape, args.repeats) for name, shape in SHAPES.items()}
    found = {
        "step_ratio": steps[MAIN]["step_ratio"],
        "memory_ratio": steps[MAIN]["memory_ratio"],
        **parts,
        "steps": steps,
        "repeats": args.repeats,
        "machine": f"{_cpu()}, {os.cpu_count()} cores, {args.threads} threads",
        "load_at_end": os.getloadavg(),
    }
    text = json.dumps(found, indent=1) + "\n"
    if args.out:
        args.out.write_text(text)
        write_page(found)
    if args.json:
        print(text, end="")
    else:
        show(found)


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), "CPU")


if __name__ == "__main__":
    main()

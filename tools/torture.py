"""Kill a tiny run again and again, resume it every time, and prove that nothing of it changed.

make torture KILLS=200
python tools/torture.py --kills 200 --out docs/results/torture.json

A run goes through once undisturbed. Then rounds of the same run are killed (SIGKILL) at random times and at random calls of
every stage and every write, halves of writes included, and resumed until they end; `oncurve compare` tells whether each
round is the undisturbed run. Rounds follow one another until there were enough kills. The processes are forked from this
one, which has imported torch but never computed, so a start is cheap; the hooks live in the forked process alone.
"""

import argparse
import ctypes
import io
import json
import mmap
import os
import platform
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import transformers

import oncurve.optimizer
import oncurve.train as loop
from oncurve.cli.main import main
from oncurve.groups.planner import Planner
from oncurve.policy.policy import Policy
from oncurve.record import checkpoint, writer
from oncurve.rewards.grader import LocalGrader
from oncurve.rollout.local import LocalSampler
from oncurve.update import Updater

NUM_TASKS, PROMPTS, ACCUMULATE, PASSES = 6, 2, 2, 2
CONFIG = f"""
name = "run"
num_steps = 12
accumulate_steps = {ACCUMULATE}
data = {{ type = "scenes", num_scenes = {NUM_TASKS} }}
heldout = {{ type = "scenes", split = "heldout", num_scenes = 4 }}
sampling = {{ prompts_per_step = {PROMPTS}, answers_per_prompt = 4 }}
objective = {{ passes = {PASSES}, kl = {{ beta = 0.05 }} }}
optimizer = {{ warmup_updates = 2, learning_rate = 1e-3, schedule = "cosine" }}
evaluate = {{ every_steps = 2, num_tasks = 4, num_probes = 2 }}
checkpoint = {{ every_steps = 4, keep_last = 2, keep_best = "eval/mean_iou" }}
"""
STAGES = {
    "load": (loop, "load_policy"),
    "self-check": (loop, "check_shared_prefix"),
    "resume": (loop, "_resume"),
    "plan": (Planner, "plan"),
    "sample": (LocalSampler, "sample"),
    "decode": (Policy, "decode"),
    "grade": (LocalGrader, "grade"),
    "assemble": (loop, "assemble"),
    "update": (Updater, "update"),
    "log-probabilities": (Policy, "logps"),
    "optimizer": (oncurve.optimizer.Optimizer, "step"),
    "sync": (loop, "sync"),
    "evaluate": (loop, "evaluate"),
    "record": (writer.RunWriter, "step"),
    "checkpoint": (checkpoint, "save"),
    "prune": (checkpoint, "prune"),
}
WRITES = {
    "append": (writer, "append"),
    "put": (writer, "put"),
    "weights": (loop, "save_model"),
    "optimizer state": (torch, "save"),
    "checkpoint's state": (Path, "write_text"),
    "rename": (Path, "rename"),
    "replace": (Path, "replace"),
    "delete": (shutil, "rmtree"),
}
POINTS = STAGES | WRITES


class Black(ctypes.Structure):
    """The black box: what a process that was killed was doing. It lies in memory shared with the parent."""

    _fields_ = (("active", ctypes.c_int64), ("step", ctypes.c_int64), ("collected", ctypes.c_int64))
    _fields_ += (("passes", ctypes.c_int64), ("calls", ctypes.c_int64 * len(POINTS)))


def halve(name: str, original: Callable, arguments: tuple, keywords: dict) -> None:
    """Do half of a write: what a kill in the midst of it leaves."""
    if name == "append":
        path, line = arguments
        with path.open("ab") as file:
            file.write(line.encode()[: len(line) // 2])
    elif name == "put":
        path, data = arguments
        path.with_name(f".{path.name}.tmp").write_bytes(data[: len(data) // 2])
    elif name == "delete":
        for path in [path for path in Path(arguments[0]).rglob("*") if path.is_file()][:2]:
            path.unlink()
    elif name in ("weights", "optimizer state", "checkpoint's state"):
        original(*arguments, **keywords)
        target = Path(arguments[0 if name == "checkpoint's state" else 1])
        for path in [target] if target.is_file() else target.glob("*.safetensors"):
            os.truncate(path, path.stat().st_size // 2)


def hook(black: Black, plan: tuple[str, str, int] | None) -> None:
    """Watch every point in this process, and die at the planned call of one: before it, after it or halfway."""

    def die_at(name: str, moment: str, call: int) -> None:
        if plan == (name, moment, call):
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(index: int, name: str, owner: object, attribute: str) -> None:
        original = getattr(owner, attribute)

        def watched(*arguments, **keywords):
            black.calls[index] += 1
            call, outer = black.calls[index], black.active
            black.active |= 1 << index
            if name == "plan":
                black.step = arguments[1]
            die_at(name, "before", call)
            if plan == (name, "halfway", call):
                halve(name, original, arguments, keywords)
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **keywords)
            black.passes += name == "optimizer"
            black.collected += name == "assemble"
            die_at(name, "after", call)
            if name == "update":
                black.passes = black.collected = 0
            black.active = outer
            return result

        setattr(owner, attribute, watched)

    for index, (name, (owner, attribute)) in enumerate(POINTS.items()):
        watch(index, name, owner, attribute)


class Torture:
    """The runs below `folder`, and what was killed where."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.rng = folder, random.Random(seed)
        (folder / "torture.toml").write_text(CONFIG)
        self.shared = mmap.mmap(-1, ctypes.sizeof(Black))
        self.black = Black.from_buffer(self.shared)
        self.kills: Counter[str] = Counter()
        self.circumstances: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()

    def attempt(self, runs: Path, plan: tuple[str, str, int] | None = None, delay_s: float | None = None) -> bool:
        """Start or resume the run in `runs`, in a process of its own; whether it came to its end."""
        run = runs / "run"
        start = [str(self.folder / "torture.toml"), f"--runs_folder={runs}"]
        arguments = ["train", *(["--resume", str(run)] if (run / "config.json").exists() else start)]
        ctypes.memset(ctypes.byref(self.black), 0, ctypes.sizeof(Black))
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1), os.dup2(log, 2)
            hook(self.black, plan)
            os._exit(main(arguments))
        while (status := os.waitpid(child, os.WNOHANG))[0] == 0:
            if delay_s is not None and time.monotonic() - begin > delay_s:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.002)
        if os.WIFEXITED(status[1]):
            if os.WEXITSTATUS(status[1]):
                raise SystemExit(f"{shlex.join(arguments)} failed:\n{(self.folder / 'log').read_text()}")
            return True
        assert os.WTERMSIG(status[1]) == signal.SIGKILL, status
        self.ways["at a random time" if plan is None else f"{plan[1]} a call"] += 1
        self.note()
        return False

    def note(self) -> None:
        """Count a kill under all that was going on."""
        black = self.black
        active = [name for index, name in enumerate(POINTS) if black.active >> index & 1]
        self.kills.update(active or ["between stages"])
        found = {
            "in a later pass over the data": (black.step - 1) * PROMPTS >= NUM_TASKS,
            "inside an accumulation": black.collected > 0 and "update" not in active,
            "between passes over a batch": 0 < black.passes < PASSES and "update" in active,
            "during an evaluation": "evaluate" in active,
            "during a checkpoint's write": "checkpoint" in active,
            "during a resume": "resume" in active,
            "inside a write": bool(WRITES.keys() & set(active)),
        }
        self.circumstances.update(name for name, true in found.items() if true)

    def undisturbed(self, runs: Path) -> tuple[list[int], float]:
        """Run it once; the calls of each point, and the seconds that it took."""
        begin = time.monotonic()
        assert self.attempt(runs)
        return list(self.black.calls), time.monotonic() - begin

    def round(self, runs: Path, calls: list[int], seconds: float, enough: int) -> int:
        """Kill and resume a run until it ends, and spare it once there were enough kills; the kills of this round."""
        kills = 0
        while kills < enough:
            if self.rng.random() < 0.4:
                ended = self.attempt(runs, delay_s=self.rng.uniform(0, 0.7 * seconds))
            else:
                index = self.rng.randrange(len(POINTS))
                name = list(POINTS)[index]
                moments = ["before", "after", *(["halfway"] * 2 if name in WRITES else [])]
                number = self.rng.randint(1, max(1, calls[index] // 2))
                ended = self.attempt(runs, plan=(name, self.rng.choice(moments), number))
            if ended:
                return kills
            kills += 1
        assert self.attempt(runs)
        return kills


def compared(a: Path, b: Path) -> dict:
    """What `oncurve compare A B --json` says; also both keep the same checkpoints and pictures, and no scraps."""
    out = io.StringIO()
    with redirect_stdout(out):
        main(["compare", str(a), str(b), "--json"])
    left = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) for folder in (a, b)]
    return json.loads(out.getvalue()) | {"same_files": left[0] == left[1]}


def torture(kills: int, seed: int, folder: Path) -> dict:
    begin, harness = time.monotonic(), Torture(folder, seed)
    whole = folder / "undisturbed"
    calls, seconds = harness.undisturbed(whole)
    done, rounds, differences = 0, 0, []
    while done < kills:
        rounds += 1
        runs = folder / f"round-{rounds}"
        done += harness.round(runs, calls, seconds, kills - done)
        found = compared(whole / "run", runs / "run")
        if not (found["identical"] and found["same_files"]):
            differences.append({"round": rounds, "folder": str(runs / "run"), **found})
            break
        shutil.rmtree(runs)
        print(f"round {rounds}: identical; {done} kills, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return {
        "kills": done,
        "rounds": rounds,
        "identical": not differences,
        "differences": differences,
        "ways": dict(harness.ways.most_common()),
        "circumstances": dict(harness.circumstances.most_common()),
        "active": dict(harness.kills.most_common()),
        "seed": seed,
        "seconds": round(time.monotonic() - begin),
        "versions": {"python": platform.python_version(), "torch": torch.__version__}
        | {"transformers": transformers.__version__},
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "command": shlex.join(["python", *sys.argv]),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="at least so many (200)")
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    parser.add_argument("--out", type=Path, help="also write the outcome to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    place = Path(tempfile.mkdtemp(prefix="torture-"))
    outcome = torture(options.kills, options.seed, place)
    print(json.dumps(outcome, indent=1))
    if options.out:
        options.out.write_text(json.dumps(outcome, indent=1) + "\n")
    if outcome["identical"]:
        shutil.rmtree(place)
    sys.exit(0 if outcome["identical"] else 1)

"""How much the code verifier's tests of HumanEval notice: the canonical solutions pass, and broken copies of them fail.

python tools/code_mutants.py problems.jsonl --out docs/results/code_mutants.json

Every canonical solution is broken in one place at a time: a constant off by one, a comparison or an arithmetic operator
swapped, a condition turned round, `and` for `or`, `True` for `False`, a range one longer. What still passes all tests is
listed. A person says of each whether it is the same function (`verdict`); a new run keeps what was said.
"""

import argparse
import ast
import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from oncurve.config.rewards import CodeRules
from oncurve.rewards.code import Verifier
from oncurve.rewards.humaneval import truth_of
from oncurve.sandbox.box import Sandbox
from oncurve.types import Rollout, Task

RULES = CodeRules(type="code", timeout_s=6.0)
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
LOGIC = {ast.And: ast.Or, ast.Or: ast.And}


def edits(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    """What can be broken at this node: words, and what does it to a copy of the node."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "flipped constant", lambda n: setattr(n, "value", not n.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "constant + 1", lambda n: setattr(n, "value", n.value + 1)
        yield "constant - 1", lambda n: setattr(n, "value", n.value - 1)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield "comparison", lambda n: n.ops.__setitem__(0, COMPARISONS[type(n.ops[0])]())
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
        yield "operator", lambda n: setattr(n, "op", OPERATORS[type(n.op)]())
    elif isinstance(node, ast.BoolOp):
        yield "and/or", lambda n: setattr(n, "op", LOGIC[type(n.op)]())
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "swapped branches", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        one_more = lambda n: setattr(n.args[min(len(n.args), 2) - 1], "_one_more", True)  # noqa: E731
        yield "range + 1", one_more


def mutants(source: str, entry_point: str) -> Iterator[tuple[str, str]]:
    """Broken copies of the function, each with words for what was done and the line as it is then."""
    module = ast.parse(source)
    function = next(n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == entry_point)
    for place, node in enumerate(ast.walk(function)):
        for words, edit in edits(node):
            broken = copy.deepcopy(module)
            broken_function = next(n for n in broken.body if isinstance(n, ast.FunctionDef) and n.name == entry_point)
            target = next(n for i, n in enumerate(ast.walk(broken_function)) if i == place)
            edit(target)
            broken = ast.fix_missing_locations(_OneMore().visit(broken))
            line = next(
                (after for before, after in zip(ast.unparse(module).split("\n"), ast.unparse(broken).split("\n"), strict=True)
                 if before != after),
                "",
            )  # fmt: skip
            if line:
                yield f"{words}: {line.strip()}", ast.unparse(broken)


class _OneMore(ast.NodeTransformer):
    def visit(self, node: ast.AST) -> ast.AST:
        node = self.generic_visit(node)
        return ast.BinOp(node, ast.Add(), ast.Constant(1)) if hasattr(node, "_one_more") else node


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", type=Path, help="HumanEval's JSONL file")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args()
    problems = [json.loads(line) for line in given.problems.read_text("utf-8").splitlines()]
    said = {}
    if given.out and given.out.is_file():
        said = {(s["task"], s["change"]): s["verdict"] for s in json.loads(given.out.read_text())["survivors"]}
    verifier, sandbox, begin = Verifier(), Sandbox(), time.perf_counter()

    def grade(task: Task, text: str) -> bool:
        return verifier.grade(task, Rollout(task.id, 0, (), text, "end", 0, 1.0, 0), RULES).correct is True

    with ThreadPoolExecutor(given.workers) as threads:
        truths = list(threads.map(lambda problem: truth_of(problem, sandbox), problems))
        tasks = [Task(problem["task_id"], "code", (), truth) for problem, truth in zip(problems, truths, strict=True)]
        sources = [problem["prompt"] + problem["canonical_solution"] for problem in problems]
        canonical = list(threads.map(grade, tasks, sources))
        broken = [
            (task, change, text)
            for task, source, problem in zip(tasks, sources, problems, strict=True)
            for change, text in mutants(source, problem["entry_point"])
        ]
        few = {task.id: replace(task, truth=replace(task.truth, tests=task.truth.tests[:4])) for task in tasks}
        passed = list(threads.map(lambda each: grade(few[each[0].id], each[2]) and grade(each[0], each[2]), broken))
    survivors = [
        {"task": task.id, "change": change, "verdict": said.get((task.id, change), "")}
        for (task, change, _), right in zip(broken, passed, strict=True)
        if right
    ]
    report = {
        "problems": len(problems),
        "tests": sum(len(truth.tests) for truth in truths),
        "canonical_passed": sum(canonical),
        "mutants": len(broken),
        "failed": len(broken) - len(survivors),
        "survivors": survivors,
    }
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(json.dumps({**report, "survivors": len(survivors), "seconds": round(time.perf_counter() - begin)}))


if __name__ == "__main__":
    main()

"""Who may import whom: a stage imports the shared base and its own folder; only a few modules compose stages."""

import ast
from collections.abc import Iterator
from pathlib import Path

import oncurve

PACKAGE = Path(oncurve.__file__).parent
BASE = {
    "errors": set(),
    "truths": set(),
    "parsing": {"errors"},
    "types": {"truths"},
    "config": {"errors"},
    "geometry": {"truths", "parsing", "errors"},
}
COMPOSERS = {"train", "batches", "sft", "evaluate", "check", "cluster"}  # any stage, but not the command line
EDGES = {
    "monitor": {"record", "groups"},
    "view": {"record"},
    "rewards": {"sandbox"},
    "update": {"answers", "objective", "optimizer"},
    "answers": {"objective"},
    "explain": {"objective", "advantage"},
    "compare": {"record"},
}
FILE_EDGES = {"policy/tiny.py": {"tasks"}}  # the names of the scenes' things are words of its vocabulary


def imported(path: Path, package: Path) -> Iterator[str]:
    """The absolute names of what the file imports, relative imports resolved, those in functions included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = [package.name, *path.relative_to(package).parent.parts]
            base = folder[: len(folder) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def parts(name: str, package: Path) -> set[str]:
    """The stage that an absolute name belongs to; none for other packages and for names of the package itself."""
    top, _, rest = name.partition(".")
    part = rest.split(".")[0]
    there = top == package.name and ((package / part).is_dir() or (package / f"{part}.py").is_file())
    return {part} if part and there else set()


def violations(package: Path) -> list[str]:
    found = []
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package)
        part = file.parts[0].removesuffix(".py")
        if part in ("cli", "__main__", "__init__"):
            continue
        everything = {entry.name.removesuffix(".py") for entry in package.iterdir()}
        if part in COMPOSERS:
            allowed = everything - {"cli"}
        else:
            allowed = BASE.get(part, BASE.keys() | EDGES.get(part, set()) | FILE_EDGES.get(file.as_posix(), set()))
        for name in imported(path, package):
            found += [f"{file.as_posix()} imports {name}" for target in parts(name, package) - allowed - {part}]
    return found


def test_a_stage_imports_the_base_and_its_own_folder_only():
    assert violations(PACKAGE) == []


def test_only_the_policy_knows_transformers():
    knowing = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        for name in imported(path, PACKAGE)
        if name.split(".")[0] == "transformers"
    }
    assert knowing == {"policy"}


def test_the_stages_that_run_without_torch():
    """What a config error, the record's reader and the data readers need starts light."""
    light = {
        "types",
        "truths",
        "parsing",
        "errors",
        "config",
        "geometry",
        "tasks",
        "groups",
        "rewards",
        "record",
        "monitor",
        "view",
    }
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in light:
            assert "torch" not in {name.split(".")[0] for name in imported(path, PACKAGE)}, path


def test_violations_are_caught_however_they_are_written(tmp_path):
    package = tmp_path / "oncurve"
    sources = {
        "types.py": "",
        "optimizer.py": "",
        "train.py": "from oncurve.policy import load\nfrom oncurve.cli import main",
        "geometry/boxes.py": "from oncurve.config import schema",
        "policy/load.py": "from ..rollout.local import LocalSampler\nfrom .. import tasks\nfrom . import tiny\nimport json",
        "policy/tiny.py": "from oncurve.tasks.scenes import names\nimport oncurve.rewards.grader",
        "rollout/local.py": "def f():\n    from oncurve.policy.load import load_policy",
        "rewards/grader.py": "from oncurve.types import Task\nfrom oncurve.sandbox import box\nfrom oncurve import optimizer",
        "config/schema.py": "from oncurve import __version__",
        "tasks/scenes.py": "",
        "sandbox/box.py": "",
        "cli/main.py": "from oncurve.train import train",
    }
    for name, source in sources.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(source)
    assert violations(package) == [
        "geometry/boxes.py imports oncurve.config.schema",
        "policy/load.py imports oncurve.rollout.local.LocalSampler",
        "policy/load.py imports oncurve.tasks",
        "policy/tiny.py imports oncurve.rewards.grader",
        "rewards/grader.py imports oncurve.optimizer",
        "rollout/local.py imports oncurve.policy.load.load_policy",
        "train.py imports oncurve.cli.main",
    ]

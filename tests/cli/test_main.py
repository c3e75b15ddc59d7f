"""The command line finds its verb, starts light, and ends with the exit status that a shell expects."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import oncurve.cli
from oncurve import __version__
from oncurve.cli import main as entry
from oncurve.cli.main import VERBS, main

HEAVY = {"torch", "transformers", "pydantic", "numpy", "rich"}

FAKE = '''
"""Try things out.

A second paragraph.
"""
import sys
from pathlib import Path
TAKES_OVERRIDES = True

def add_arguments(parser):
    parser.add_argument("config", type=Path)
    parser.add_argument("--out", default="none")
    parser.add_argument("--raises")

def run(args):
    from oncurve.config.loader import load
    from oncurve.config.schema import TrainConfig
    if args.raises == "pipe":
        raise BrokenPipeError("a worker's")
    if args.raises == "flood":
        print("line\\\\n" * 100_000)
    elif args.raises:
        raise KeyboardInterrupt
    config = load(args.config, args.overrides, TrainConfig)
    print(config.seed, config.data.prompt, args.out, args.overrides)
    return 7
'''.replace("\\\\n", "\\n")


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A verb `fake` that reads a configuration, in this process and in those that `python` starts."""
    (tmp_path / "fake.py").write_text(FAKE, "utf-8")
    monkeypatch.setattr(oncurve.cli, "__path__", [*oncurve.cli.__path__, str(tmp_path)])
    monkeypatch.setitem(VERBS, "fake", "try things out")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("oncurve.cli.fake", None)


def python(code, *arguments, **options):
    path = os.pathsep.join([str(Path(oncurve.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, **options)


IN_A_PROCESS = """
import sys, oncurve.cli
from oncurve.cli.main import VERBS, main
oncurve.cli.__path__.append(".")
VERBS["fake"] = "try things out"
status = main()
print("loaded:", *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_verb(capsys, arguments):
    assert main(arguments) == 0
    lines = capsys.readouterr().out.split("\n")
    assert max(map(len, lines)) <= 100
    for verb, text in VERBS.items():
        assert any(line.split(maxsplit=1) == [verb, text] for line in lines)


def test_help_imports_nothing_heavy():
    done = python(IN_A_PROCESS, "--help")
    loaded = set(done.stderr.removeprefix("loaded: ").split())
    assert done.returncode == 0
    assert "argparse" in loaded
    assert not loaded & HEAVY


def test_module_entry():
    done = python("import runpy; runpy.run_module('oncurve', run_name='__main__')", "--version")
    assert (done.returncode, done.stdout) == (0, f"oncurve {__version__}\n")


def test_unknown_verb(capsys):
    assert main(["trian"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("oncurve: no verb 'trian'; did you mean 'train'?\n    verbs: train, sft, ")
    assert main(["--verbose"]) == 2
    assert capsys.readouterr().err.startswith("oncurve: no verb '--verbose'\n")


def test_overrides_and_options_are_told_apart(fake, capsys):
    Path("a.toml").write_text("seed = 3")
    arguments = ["fake", "--data.prompt=find the {phrase}", "a.toml", "--out=x y", "--seed=5"]
    assert main(arguments) == 7
    assert capsys.readouterr().out == "5 find the {phrase} x y ['--data.prompt=find the {phrase}', '--seed=5']\n"


def test_what_is_neither_option_nor_override(fake, capsys):
    assert main(["fake", "a.toml", "--seed", "5"]) == 2
    assert "unrecognized arguments: --seed 5 (an override is written --key=value)" in capsys.readouterr().err
    assert main(["fake", "a.toml", "--ou", "5"]) == 2  # options are not abbreviated


def test_a_verb_without_overrides_refuses_them(fake, capsys):
    (fake / "fake.py").write_text(FAKE.replace("TAKES_OVERRIDES = True", ""), "utf-8")
    assert main(["fake", "a.toml", "--data.prompt=x"]) == 2
    assert capsys.readouterr().err.endswith("error: unrecognized arguments: --data.prompt=x\n")


def test_help_of_a_verb(fake, capsys):
    assert main(["fake", "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: oncurve fake ")
    assert "Try things out.\n\nA second paragraph." in out
    assert "--KEY=VALUE overrides a key of the configuration" in out


def test_a_bad_configuration_ends_with_2_and_no_traceback_before_torch(fake):
    Path("a.toml").write_text("num_stpes = 3")
    done = python(IN_A_PROCESS, "fake", "a.toml", "--sampling.group_size=3")
    *text, loaded = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert text[:2] == ["oncurve: 2 faults in a.toml and its overrides", ""]
    assert "    did you mean 'num_steps'?" in text
    assert "--sampling.group_size=3" in text
    assert "Traceback" not in done.stderr
    assert not {"torch", "transformers"} & set(loaded.split())
    assert "pydantic" in loaded.split()


def test_an_interrupt_ends_with_130(fake, capsys):
    assert main(["fake", "a.toml", "--raises=interrupt"]) == 130
    assert capsys.readouterr().err == "\noncurve: stopped\n"


def test_a_closed_pipe_is_quiet(fake):
    command = [sys.executable, "-c", IN_A_PROCESS, "fake", "a.toml", "--raises=flood"]
    env = os.environ | {"PYTHONPATH": str(Path(oncurve.__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert process.returncode == 141
    assert errors.startswith("loaded:")


def test_a_broken_pipe_of_a_worker_is_not_hidden(fake):
    with pytest.raises(BrokenPipeError, match="a worker's"):
        main(["fake", "a.toml", "--raises=pipe"])


def test_every_verb_there_is_has_its_functions_and_help():
    here = Path(entry.__file__).parent
    present = [verb for verb in VERBS if (here / f"{verb}.py").exists()]
    assert "explain" in present
    done = python(
        "import importlib, sys\n"
        "for verb in sys.argv[1:]:\n"
        "    module = importlib.import_module(f'oncurve.cli.{verb}')\n"
        "    assert module.__doc__ and module.add_arguments and module.run, verb\n"
        "print(*{'torch', 'transformers'} & set(sys.modules))",
        *present,
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr

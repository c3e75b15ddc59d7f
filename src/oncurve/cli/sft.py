"""Train a model on images and answers, the stage before GRPO.

oncurve sft recipes/warmup.toml
"""

import argparse
import shlex
import sys
from pathlib import Path

TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="a TOML file, such as recipes/warmup.toml")
    parser.add_argument("--replace", action="store_true", help="delete the run of the same name first")


def run(args: argparse.Namespace) -> int:
    from oncurve.config.loader import load
    from oncurve.config.schema import SftConfig

    config = load(args.config, args.overrides, SftConfig)

    from rich.console import Console

    from oncurve.cli.terminal import print_outcome
    from oncurve.sft import run_sft

    console = Console()
    result = run_sft(
        config,
        shlex.join(["oncurve", *sys.argv[1:]]),
        replace=args.replace,
        show=lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True),
    )
    print_outcome(console, result.folder)
    return 0

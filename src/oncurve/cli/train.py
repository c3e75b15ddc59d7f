"""Train a model with GRPO, as a configuration says.

oncurve train recipes/cat_and_dog.toml
oncurve train recipes/cat_and_dog.toml --name=wider --sampling.answers_per_prompt=16
oncurve train --resume runs/cat_and_dog
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file, such as recipes/cat_and_dog.toml")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run from its last checkpoint")
    parser.add_argument("--replace", action="store_true", help="delete the run of the same name first")
    parser.add_argument(
        "--allow-unsafe", action="store_true", help="run code without isolation, which every score says"
    )
    parser.add_argument("--no-audit", action="store_true", help="train although `oncurve audit` breaks the reward")


def run(args: argparse.Namespace) -> int:
    from oncurve.config.loader import load
    from oncurve.config.schema import TrainConfig
    from oncurve.errors import ConfigError

    if bool(args.config) == bool(args.resume):
        raise ConfigError("give either a configuration (oncurve train CONFIG) or a run to go on with (--resume RUN)")
    if args.resume and (args.overrides or args.replace):
        raise ConfigError("--resume goes on with the run's own configuration and takes no other options")
    config = config_of(args.resume) if args.resume else load(args.config, args.overrides, TrainConfig)

    from rich.console import Console

    from oncurve.cli.terminal import Terminal, print_outcome
    from oncurve.train import train

    console = Console()
    with Terminal(console) as terminal:
        command = shlex.join(["oncurve", *sys.argv[1:]])
        folder = train(
            config,
            command,
            terminal,
            resume=args.resume,
            replace=args.replace,
            audit=not (args.resume or args.no_audit),
            allow_unsafe=args.allow_unsafe,
        )
    print_outcome(console, folder)
    return 0


def config_of(run_folder: Path):
    """The configuration that a run of `oncurve train` was started with. Raises `RunError` for any other folder."""
    from pydantic import ValidationError

    from oncurve.config.schema import TrainConfig
    from oncurve.errors import RunError
    from oncurve.record.reader import RunReader

    try:
        return TrainConfig.model_validate_json(json.dumps(RunReader(run_folder).config))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "the top"
        raise RunError(
            f"{run_folder} is no run of `oncurve train` as this Oncurve knows it: in its config.json, at {where}: "
            f"{error.errors()[0]['msg']}"
        ) from None

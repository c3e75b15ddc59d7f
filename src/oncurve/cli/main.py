"""The `oncurve` command: finds the verb, and imports only its module."""

import argparse
import importlib
import os
import re
import select
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from oncurve import __version__
from oncurve.errors import OncurveError

VERBS = {
    "train": "train a model with GRPO, as a configuration says",
    "sft": "train a model on images and answers, the stage before GRPO",
    "eval": "measure a model or a run on held-out tasks",
    "grade": "grade answers from a file, to try a verifier",
    "rescore": "grade a run's answers again by today's rules, and show what would change",
    "predict": "find one thing in one image, and draw its box",
    "explain": "work one GRPO step out by hand, each formula with its numbers",
    "trace": "follow every number of a recorded step, from the answers to the loss",
    "check": "look at data, reward, baseline, memory and time before a training, and advise",
    "plan": "print what a configuration means before anything runs",
    "audit": "attack a configuration's reward before a model does",
    "readout": "write a run's questions, answers and curves as Markdown to read",
    "doctor": "tell what is wrong with a run, since when, and what to do",
    "compare": "tell whether two runs are the same bit for bit, and where they differ",
    "sandbox": "attack the sandbox that untrusted code runs in, and tell what it withstands",
    "export": "write a run's model for transformers and vLLM, with a model card",
}

HELP = f"""\
Oncurve trains vision-language models with GRPO on rewards that a program can verify.

usage: oncurve VERB ...            oncurve VERB --help says more of one verb

{"".join(f"  {verb:<9}{text}{chr(10)}" for verb, text in VERBS.items())}
start here:
  oncurve explain                             see how GRPO gets from answers to a loss
  oncurve plan recipes/cat_and_dog.toml       see what a training would do
  oncurve train recipes/cat_and_dog.toml      do it
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    2 for bad input, 3 for a run that its health rules ended, 130 for Ctrl-C.
    """
    try:
        status = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except SystemExit as stop:  # of argparse, after it has printed its help or error
        return stop.code if isinstance(stop.code, int) else 0
    except OncurveError as error:
        print(f"oncurve: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt as stop:
        print(f"\noncurve: {str(stop) or 'stopped'}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if not _reader_gone():
            raise
        return 141


def _dispatch(arguments: list[str]) -> int:
    verb, *rest = arguments or ["--help"]
    if verb in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if verb == "--version":
        print(f"oncurve {__version__}")
        return 0
    if verb not in VERBS:
        close = get_close_matches(verb, VERBS, 1)
        meant = f"; did you mean '{close[0]}'?" if close else ""
        print(f"oncurve: no verb '{verb}'{meant}\n    verbs: {', '.join(VERBS)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"oncurve.cli.{verb}")
    takes_overrides = getattr(module, "TAKES_OVERRIDES", False)
    parser = argparse.ArgumentParser(
        prog=f"oncurve {verb}",
        description=module.__doc__,
        epilog="--KEY=VALUE overrides a key of the configuration: --sampling.prompts_per_step=4"
        if takes_overrides
        else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    overrides = [text for text in rest if takes_overrides and _is_override(text, parser)]
    args, unknown = parser.parse_known_args([text for text in rest if text not in overrides])
    if unknown:
        hint = " (an override is written --key=value)" if takes_overrides else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    args.overrides = overrides
    return module.run(args)


def _is_override(text: str, parser: argparse.ArgumentParser) -> bool:
    """Whether `text` is a `--key=value` that is none of the verb's own options."""
    match = re.match(r"(--[\w.-]+)=", text)
    return bool(match) and match[1] not in parser._option_string_actions


def _reader_gone() -> bool:
    """Whether the reader of standard output, such as `head`, has closed it; if so, nothing more is written there."""
    stdout = sys.__stdout__.fileno()
    poll = select.poll()
    poll.register(stdout, select.POLLOUT)
    if gone := any(event & select.POLLERR for _, event in poll.poll(0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return gone

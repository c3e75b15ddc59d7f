"""Find one thing in one image, and draw its box.

oncurve predict photo.jpg "the cat" --model runs/cat_and_dog --out boxed.png
"""

import argparse
import json
from pathlib import Path

from oncurve.cli.eval import whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", type=Path)
    parser.add_argument("phrase", help='what to find, such as "the cat"')
    parser.add_argument(
        "--model", default="builtin:tiny", help="builtin:tiny, a run's folder, a model's folder or a hub id"
    )
    parser.add_argument("--prompt", default="box {phrase}", help="how the model is asked")
    parser.add_argument("--out", type=Path, help="write the image with the box drawn on it")
    parser.add_argument("--max-new-tokens", type=whole_number, default=16)
    parser.add_argument("--json", action="store_true", help="one JSON document and nothing else")


def run(args: argparse.Namespace) -> int:
    from oncurve.errors import RunError
    from oncurve.tasks.images import open_image
    from oncurve.tasks.sets import prompt_text

    image = open_image(args.image)
    question = prompt_text(args.prompt, args.phrase)

    from oncurve.config.schema import ModelConfig
    from oncurve.geometry.dialects import parse_box01
    from oncurve.parsing import MalformedAnswer
    from oncurve.policy.load import load_policy
    from oncurve.rollout.local import LocalSampler
    from oncurve.types import Message, Request, Task

    policy = load_policy(ModelConfig(path=args.model))
    task = Task(str(args.image), "grounding", (Message("user", question, (image,)),), truth=None)
    sampler = LocalSampler(policy, max_new_tokens=args.max_new_tokens)
    ((rollout,),) = sampler.sample([Request(task, 1, 0.0)], step=0, seed=0)
    try:
        box, fault = parse_box01(rollout.text), None
    except MalformedAnswer as error:
        box, fault = None, str(error)
    if args.json:
        print(json.dumps({"text": rollout.text, "box": box, "fault": fault}))
    else:
        print(rollout.text if fault is None else f"{rollout.text!r} is no box: {fault}")
    if args.out and box:
        try:
            draw_box(image.pixels, box).save(args.out)
        except (OSError, ValueError) as error:
            raise RunError(f"{args.out}: the picture can't be written: {error}") from error
    return 0 if box else 1


def draw_box(picture, box, color: str = "#ff2d2d"):
    """A copy of the picture with the box (0..1) outlined."""
    from PIL import ImageDraw

    boxed = picture.copy()
    width, height = boxed.size
    corners = [round(at * (side - 1)) for at, side in zip(box, (width, height, width, height), strict=True)]
    ImageDraw.Draw(boxed).rectangle(corners, outline=color, width=max(2, max(boxed.size) // 100))
    return boxed

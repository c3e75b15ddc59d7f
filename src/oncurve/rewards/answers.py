"""An answer that is a text and nothing more, as it comes from a file, a record or an attack."""

from collections.abc import Sequence

from oncurve.types import Rollout, Task


def text_answer(task: Task, text: str, model_image_sizes: Sequence[tuple[int, int]] = ()) -> Rollout:
    """`text` as an answer to `task`. It has no tokens, so that nothing can train on it."""
    return Rollout(
        task.id,
        0,
        (),
        text,
        "end",
        policy_version=0,
        temperature=0.0,
        seed=0,
        model_image_sizes=tuple(model_image_sizes),
    )

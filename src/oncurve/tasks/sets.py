"""Data sets: the built-in scenes, and JSONL and COCO files from disk."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from pydantic import TypeAdapter, ValidationError

from oncurve.config.schema import DataConfig, FiguresData, JsonlData, ScenesData, TasksData, TrainConfig
from oncurve.errors import BrokenTruth, DataError
from oncurve.tasks.figures import PROMPTS, draw_figure, make_figure
from oncurve.tasks.images import ImageError, open_image
from oncurve.tasks.questions import Question, parse_question, read_lines, read_text, task_of
from oncurve.tasks.rows import DataRow, Rejection, place_box, read_coco, read_jsonl
from oncurve.tasks.scenes import draw_scene, make_scene
from oncurve.truths import Box, BoxTruth
from oncurve.types import Kind, Message, Task, TaskImage, TaskSet

FORMS = """allowed are
  scenes:train   scenes:heldout                            built-in scenes
  figures:train  figures:heldout                           built-in figures; ?language=zh, ?size_px=512
  FILE.jsonl?space=pixel_original&order=xywh               spaces: unit, thousand, percent, pixel_original;
                                                           orders: xyxy, xywh, cxcywh, yxyx
  FILE.jsonl                                               tasks of any kind: kind, prompt, truth (docs/rewards.md)
  general                                                  built-in short questions outside most tasks
  FILE.json?images=FOLDER                                  COCO's instances"""
GENERAL = Path(__file__).parent / "general.jsonl"
NUM_SHOWN = 3  # places of one reason, and rows in an error


@dataclass(frozen=True, slots=True)
class SceneTasks:
    """The built-in scenes of one split, drawn when asked for."""

    config: ScenesData
    rejections: tuple[Rejection, ...] = ()

    @property
    def name(self) -> str:
        return f"scenes:{self.config.split}"

    def __len__(self) -> int:
        return self.config.num_scenes

    def __getitem__(self, index: int) -> Task:
        index = range(len(self))[index]
        scene = make_scene(self.config.split, index, self.config.max_things)
        task_id = f"{self.name}/{index}"
        image = TaskImage.of(draw_scene(scene), task_id)
        return _task(task_id, image, self.config.prompt, scene.phrase, scene.box, scene.things[0].name)

    def kind(self, index: int) -> Kind:
        return "grounding"


@dataclass(frozen=True, slots=True)
class FigureTasks:
    """The built-in figures of one split, drawn when asked for."""

    config: FiguresData
    rejections: tuple[Rejection, ...] = ()

    @property
    def name(self) -> str:
        return f"figures:{self.config.split}"

    def __len__(self) -> int:
        return self.config.num_figures

    def __getitem__(self, index: int) -> Task:
        index, language = range(len(self))[index], self.config.language
        figure = make_figure(self.config.split, index)
        task_id = f"{self.name}/{index}"
        image = TaskImage.of(draw_figure(figure, self.config.size_px), task_id)
        message = Message("user", self.config.prompt or PROMPTS[language], (image,))
        return Task(task_id, "evidence", (message,), figure.truth, {"language": language})

    def kind(self, index: int) -> Kind:
        return "evidence"


@dataclass(frozen=True, slots=True)
class DiskTasks:
    """The usable rows of a file, in its order, and the rows that were left out. Pictures are opened when asked for."""

    name: str
    prompt: str
    rows: tuple[tuple[DataRow, Box], ...]
    rejections: tuple[Rejection, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Task:
        row, box = self.rows[index]
        return _task(row.id, open_image(row.image), self.prompt, row.phrase, box, row.phrase)

    def kind(self, index: int) -> Kind:
        return "grounding"


@dataclass(frozen=True, slots=True)
class QuestionTasks:
    """The tasks of a file of any kinds, in its order. Pictures, relative to the file, are opened when asked for."""

    name: str
    folder: Path
    questions: tuple[tuple[str, Question], ...]  # place, row
    rejections: tuple[Rejection, ...] = ()

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> Task:
        place, question = self.questions[index]
        return task_of(question, place, tuple(open_image(self.folder / path) for path in question.images))

    def kind(self, index: int) -> Kind:
        return self.questions[index][1].kind


def load_tasks(config: DataConfig) -> SceneTasks | FigureTasks | DiskTasks | QuestionTasks:
    """The data set that `config` names.

    Every picture of a file is decoded once, so that a bad one is known before a run starts. Rows that can't be used are
    in `rejections`. Raises `DataError` for a file that can't be read, a prompt without `{phrase}`, and a data set
    without a usable task.
    """
    if isinstance(config, TasksData):
        return _load_questions(Path(config.path))
    if isinstance(config, FiguresData):
        return FigureTasks(config)
    prompt_text(config.prompt, "the cat")
    if isinstance(config, ScenesData):
        return SceneTasks(config)
    rows = list(read_jsonl(config) if isinstance(config, JsonlData) else read_coco(config))
    paths = list(dict.fromkeys(row.image for row in rows if isinstance(row, DataRow)))
    with ThreadPoolExecutor() as pool:
        sizes = dict(zip(paths, pool.map(_size_px, paths), strict=True))
    usable, rejections = [], []
    for row in rows:
        result = row if isinstance(row, Rejection) else _place(row, sizes[row.image])
        if isinstance(result, Rejection):
            rejections.append(result)
        else:
            usable.append((row, result))
    if not usable:
        shown = "".join(f"\n  {rejection.place}: {rejection.words}" for rejection in rejections[:NUM_SHOWN])
        found = describe_rejections(rejections, 0) or "it holds no row"
        raise DataError(f"{config.path}: no usable task: {found}{shown}")
    return DiskTasks(Path(config.path).name, config.prompt, tuple(usable), tuple(rejections))


def check_truths(tasks: TaskSet, check: Callable[[Iterable[Task]], None]) -> None:
    """Let a grader look at the truth of every task that came from rows. Raises `DataError` with the place of a broken one.

    The truths of other sets are boxes, which are whole once they are made.
    """
    for place, question in tasks.questions if isinstance(tasks, QuestionTasks) else ():
        try:
            check([task_of(question, place)])
        except BrokenTruth as error:
            raise DataError(f"{place}: {error}") from None


def _load_questions(path: Path) -> QuestionTasks:
    """Every row must be right: a truth or an option that is wrong would teach the wrong thing. Raises `DataError`."""
    questions, seen = [], {}
    for place, row in read_lines(path, read_text(path)):
        try:
            question = parse_question(row)
            if not question.prompt:
                raise DataError("prompt: it is missing; a model needs to be asked something")
            task = task_of(question, place)
            for image in question.images:
                open_image(path.parent / image)
        except DataError as error:
            raise DataError(f"{place}: {error}") from None
        if task.id in seen:
            raise DataError(f"{place}: id {task.id} is taken by {seen[task.id]}; ids must be unique")
        seen[task.id] = place
        questions.append((place, question))
    if not questions:
        raise DataError(f"{path}: no task: it holds no row")
    return QuestionTasks(path.name, path.parent, tuple(questions))


def parse_data(text: str) -> DataConfig:
    """A data set from its short form on the command line. Raises `DataError` that names the forms.

    Examples: `scenes:heldout`, `photos.jsonl?space=pixel_original&order=xywh`, `instances.json?images=train2017`.
    Behind the `?` stand the keys of the data set's configuration.
    """
    source, _, query = text.partition("?")
    if source in ("scenes:train", "scenes:heldout", "figures:train", "figures:heldout"):
        named = dict(zip(("type", "split"), source.split(":"), strict=True))
    elif source == "general":
        named = {"type": "tasks", "path": str(GENERAL)}
    elif source.endswith((".jsonl", ".json")):
        lines = "jsonl" if query else "tasks"
        named = {"type": lines if source.endswith(".jsonl") else "coco", "path": source}
    else:
        raise DataError(f"data {text!r}: unknown; {FORMS}")
    pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
    fields = named | dict(pairs)
    if len(fields) < len(named) + len(pairs):
        raise DataError(f"data {text!r}: a key is given twice, or is fixed by what stands before the `?`; {FORMS}")
    if source == "scenes:heldout":
        fields.setdefault("num_scenes", str(TrainConfig().heldout.num_scenes))
    try:
        return TypeAdapter(DataConfig).validate_strings(fields)
    except ValidationError as error:
        faults = "; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors())
        raise DataError(f"data {text!r}: {faults}; {FORMS}") from None


def prompt_text(prompt: str, phrase: str) -> str:
    """The message's text. Raises `DataError` where `prompt` has no `{phrase}` or another field."""
    try:
        fields = {name for _, name, _, _ in Formatter().parse(prompt) if name is not None}
        if fields == {"phrase"}:
            return prompt.format(phrase=phrase)
        found = "no field" if not fields else ", ".join(f"{{{name}}}" for name in sorted(fields))
    except (ValueError, LookupError) as error:
        found = str(error)
    raise DataError(
        f'prompt {prompt!r}: {found}; it must hold {{phrase}}, as in "box {{phrase}}", and no other field '
        "(a brace of the text is written twice)"
    )


def describe_rejections(rejections: Sequence[Rejection], num_tasks: int) -> str:
    """What was left out of a data set with `num_tasks` usable rows, in a line; "" where nothing was.

    Example: `3 of 120 rows left out: 2 image missing (photos.jsonl:4, :9), 1 outside (photos.jsonl:70)`.
    """
    by_reason: dict[str, list[str]] = {}
    for rejection in rejections:
        by_reason.setdefault(rejection.reason, []).append(rejection.place)
    parts = []
    for reason, places in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        shown = [places[0], *(":" + place.rpartition(":")[2] for place in places[1:NUM_SHOWN])]
        more = ", …" if len(places) > NUM_SHOWN else ""
        parts.append(f"{len(places)} {reason.replace('_', ' ')} ({', '.join(shown)}{more})")
    total = num_tasks + len(rejections)
    return f"{len(rejections)} of {total} rows left out: {', '.join(parts)}" if parts else ""


def _task(task_id: str, image: TaskImage, prompt: str, phrase: str, box: Box, category: str) -> Task:
    message = Message("user", prompt_text(prompt, phrase), (image,))
    return Task(task_id, "grounding", (message,), BoxTruth(box), category=category)


def _size_px(path: Path) -> tuple[int, int] | ImageError:
    try:
        return open_image(path).pixels.size
    except ImageError as error:
        return error


def _place(row: DataRow, size_px: tuple[int, int] | ImageError) -> Box | Rejection:
    if isinstance(size_px, ImageError):
        return Rejection(row.place, size_px.reason, str(size_px))
    return place_box(row, size_px)

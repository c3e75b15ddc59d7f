import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from oncurve.config.schema import CocoData, JsonlData, ScenesData
from oncurve.errors import DataError
from oncurve.geometry.boxes import is_valid
from oncurve.tasks.rows import DataRow, Rejection, place_box
from oncurve.tasks.sets import describe_rejections, load_tasks, parse_data, prompt_text

PHOTOS = Path(__file__).parents[2] / "recipes" / "photos"


def picture(path, size=(40, 20)):
    Image.new("RGB", size, "navy").save(path)


def jsonl(folder, *rows, space="pixel_original", order="xyxy", prompt="box {phrase}"):
    """Writes rows (objects, or raw lines) beside a picture `a.png` of 40x20 px and gives the configuration."""
    picture(folder / "a.png")
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    (folder / "rows.jsonl").write_bytes(b"\n".join(lines))
    return JsonlData(type="jsonl", path=str(folder / "rows.jsonl"), space=space, order=order, prompt=prompt)


def row(box=(4, 5, 20, 10), **changes):
    return {"image": "a.png", "phrase": "the cat", "box": list(box)} | changes


def reasons(tasks):
    return [(rejection.place, rejection.reason) for rejection in tasks.rejections]


class TestScenes:
    def test_tasks(self):
        tasks = load_tasks(ScenesData(split="heldout", num_scenes=3, prompt="where is {phrase}?"))
        assert (tasks.name, len(tasks), tasks.rejections) == ("scenes:heldout", 3, ())
        task = tasks[0]
        assert (task.id, task.kind) == ("scenes:heldout/0", "grounding")
        assert task.messages[0].text == "where is the fish?"
        assert task.truth.box == (0.078125, 0.375, 0.546875, 0.703125)
        assert task.images[0].pixels.size == (64, 64)
        assert [t.id for t in tasks] == [f"scenes:heldout/{index}" for index in range(3)]
        assert tasks[-1].id == "scenes:heldout/2"
        with pytest.raises(IndexError):
            tasks[3]

    def test_a_single_thing_needs_no_contrast(self):
        tasks = load_tasks(ScenesData(max_things=1))
        assert all(len(tasks[index].messages[0].text.split()) == 3 for index in range(20))  # no "left", no "largest"


class TestJsonl:
    @pytest.mark.parametrize(
        ("space", "order", "numbers"),
        [
            ("pixel_original", "xyxy", (4, 5, 20, 10)),
            ("pixel_original", "xywh", (4, 5, 16, 5)),
            ("pixel_original", "cxcywh", (12, 7.5, 16, 5)),
            ("pixel_original", "yxyx", (5, 4, 10, 20)),
            ("unit", "xyxy", (0.1, 0.25, 0.5, 0.5)),
            ("thousand", "xywh", (100, 250, 400, 250)),
            ("percent", "yxyx", (25, 10, 50, 50)),
        ],
    )
    def test_spaces_and_orders(self, tmp_path, space, order, numbers):
        tasks = load_tasks(jsonl(tmp_path, row(numbers), space=space, order=order))
        assert tasks[0].truth.box == pytest.approx((0.1, 0.25, 0.5, 0.5), abs=1e-12)

    def test_a_task(self, tmp_path):
        tasks = load_tasks(
            jsonl(tmp_path, b"", row(source="further keys are let through"), prompt="find {phrase}, please")
        )
        assert (tasks.name, len(tasks), tasks.rejections) == ("rows.jsonl", 1, ())
        task = tasks[0]
        assert (task.id, task.kind, task.messages[0].text) == ("rows.jsonl:2", "grounding", "find the cat, please")
        assert task.images[0].pixels.getpixel((0, 0)) == (0, 0, 128)
        with pytest.raises(IndexError):
            tasks[1]

    def test_the_truth_fits_a_rotated_picture(self, tmp_path):
        stored = Image.new("RGB", (40, 24), "white")
        ImageDraw.Draw(stored).rectangle((0, 0, 9, 5), fill="red")  # upright: the right-hand end of the top
        exif = Image.Exif()
        exif[274] = 6
        stored.save(tmp_path / "turned.png", exif=exif)
        task = load_tasks(jsonl(tmp_path, row((18, 0, 24, 10), image="turned.png")))[0]
        pixels, (x1, y1, x2, y2) = task.images[0].pixels, task.truth.box
        inside = pixels.crop((round(x1 * 24), round(y1 * 40), round(x2 * 24), round(y2 * 40)))
        assert inside.size == (6, 10)
        assert inside.getcolors() == [(60, (255, 0, 0))]
        assert pixels.getcolors() == [(900, (255, 255, 255)), (60, (255, 0, 0))]

    def test_each_unusable_row_is_listed_with_its_reason(self, tmp_path):
        picture(tmp_path / "dot.png", (1, 1))
        Image.new("RGB", (64, 64), "olive").save(tmp_path / "cut.jpg")
        (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:-60])
        (tmp_path / "text.png").write_text("no picture")
        cases = [
            (row(image="none.png"), "image_missing"),
            (row(image="cut.jpg"), "image_damaged"),
            (row(image="text.png"), "image_unknown"),
            (row(image="dot.png"), "image_too_small"),
            (row(image="a\0.png"), "image_damaged"),
            (row((4, 5, 60, 10)), "outside"),
            (row((-3, 5, 20, 10)), "outside"),
            (row((20, 5, 4, 10)), "swapped_corners"),
            (row((4, 10, 20, 5)), "swapped_corners"),
            (row((4, 5, 4, 10)), "no_area"),
            (row((40, 5, 41, 10)), "no_area"),
            (row((4, 5, float("nan"), 10)), "not_finite"),
            (row((4, 5, float("inf"), 10)), "not_finite"),
            (row((4, 5, 10**400, 10)), "not_finite"),
            (row((4, 5, "20", 10)), "wrong_type"),
            (row((4, 5, True, 10)), "wrong_type"),
            (row((4, 5, 20)), "wrong_type"),
            (row() | {"box": None}, "wrong_type"),
            (row(phrase=7), "wrong_type"),
            (row(phrase=" "), "empty_phrase"),
            ({"image": "a.png", "box": [4, 5, 20, 10]}, "missing_key"),
            ({"image": "a.png", "phrase": "the cat"}, "missing_key"),
            ([1, 2], "wrong_type"),
            (b'{"image": "a.png", ', "not_json"),
            (b"\xff\xfe", "not_json"),
            (b"[" * 10_000, "not_json"),
        ]
        tasks = load_tasks(jsonl(tmp_path, *(case for case, _ in cases), row()))
        assert reasons(tasks) == [(f"rows.jsonl:{line}", reason) for line, (_, reason) in enumerate(cases, start=1)]
        assert [task.id for task in tasks] == [f"rows.jsonl:{len(cases) + 1}"]
        words = {rejection.place: rejection.words for rejection in tasks.rejections}
        assert str(tmp_path / "none.png") in words["rows.jsonl:1"]
        assert "[4, 5, 60, 10] (pixel_original, xyxy) reaches outside the picture of 40x20 px" in words["rows.jsonl:6"]
        assert "phrase" in words["rows.jsonl:21"]

    def test_a_byte_order_mark_is_no_fault(self, tmp_path):
        assert len(load_tasks(jsonl(tmp_path, b"\xef\xbb\xbf" + json.dumps(row()).encode()))) == 1

    def test_rounding_over_the_edge_is_cut_off(self, tmp_path):
        tasks = load_tasks(jsonl(tmp_path, row((-1, -0.5, 41, 21)), row((-1.01, 0, 40, 20)), row((0, 0, 40, 21.01))))
        assert tasks[0].truth.box == (0.0, 0.0, 1.0, 1.0)
        assert reasons(tasks) == [("rows.jsonl:2", "outside"), ("rows.jsonl:3", "outside")]
        tasks = load_tasks(jsonl(tmp_path, row((0, 0, 1001, 500)), row((0, 0, 1002, 500)), space="thousand"))
        assert tasks[0].truth.box == (0.0, 0.0, 1.0, 0.5)
        assert reasons(tasks) == [("rows.jsonl:2", "outside")]

    def test_no_file_no_row_no_usable_row(self, tmp_path):
        config = jsonl(tmp_path, row(image="x.png"), row(image="y.png"), b"{")
        with pytest.raises(DataError, match=r"3 of 3 rows left out: 2 image missing \(rows\.jsonl:1, :2\)") as caught:
            load_tasks(config)
        assert str(tmp_path / "x.png") in str(caught.value)
        with pytest.raises(DataError, match="no usable task: it holds no row"):
            load_tasks(jsonl(tmp_path, b"", b"  "))
        with pytest.raises(DataError, match=r"missing\.jsonl"):
            load_tasks(config.model_copy(update={"path": str(tmp_path / "missing.jsonl")}))
        with pytest.raises(DataError, match="can't be read"):
            load_tasks(config.model_copy(update={"path": str(tmp_path)}))

    def test_a_picture_that_vanishes_later_is_a_clear_error(self, tmp_path):
        tasks = load_tasks(jsonl(tmp_path, row()))
        (tmp_path / "a.png").unlink()
        with pytest.raises(DataError, match="there is no such file"):
            tasks[0]


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(-30, 1030) | st.sampled_from([0.0, 1000.0, float("nan"), float("inf")]), min_size=4, max_size=4),
    st.sampled_from(["unit", "thousand", "percent", "pixel_original"]),
    st.sampled_from(["xyxy", "xywh", "cxcywh", "yxyx"]),
)
def test_a_placed_box_is_always_valid(numbers, space, order):
    placed = place_box(DataRow("id", "place", Path("a.png"), "the cat", numbers, space, order), (1000, 800))
    assert is_valid(placed) if isinstance(placed, tuple) else placed.place == "place"


def coco(folder, images=None, annotations=None, categories=None):
    content = {
        "images": images or [{"id": 7, "file_name": "a.png", "width": 40, "height": 20}],
        "annotations": annotations or [],
        "categories": categories or [{"id": 1, "name": "cat"}, {"id": 2, "name": "fire hydrant"}],
    }
    picture(folder / "a.png")
    (folder / "instances.json").write_text(json.dumps(content))
    return CocoData(type="coco", path=str(folder / "instances.json"), images=str(folder))


def annotation(category=1, bbox=(4, 5, 16, 5), image=7, **more):
    return {"image_id": image, "category_id": category, "bbox": list(bbox), "iscrowd": 0} | more


class TestCoco:
    def test_a_task(self, tmp_path):
        tasks = load_tasks(coco(tmp_path, annotations=[annotation(2)]))
        task = tasks[0]
        assert (tasks.name, task.id, task.messages[0].text) == (
            "instances.json",
            "coco:7/fire hydrant",
            "box the fire hydrant",
        )
        assert task.truth.box == pytest.approx((0.1, 0.25, 0.5, 0.5), abs=1e-12)

    def test_only_what_occurs_once_and_is_no_crowd(self, tmp_path):
        categories = [{"id": number, "name": name} for number, name in enumerate("abcde")]
        annotations = [
            annotation(0),
            *(annotation(1), annotation(1)),
            *(annotation(2), annotation(2, iscrowd=1)),
            annotation(3, iscrowd=1),
            *(annotation(4), annotation(4, bbox=())),  # without a good box, but there all the same
        ]
        tasks = load_tasks(coco(tmp_path, annotations=annotations, categories=categories))
        assert [task.id for task in tasks] == ["coco:7/a"]
        assert tasks.rejections == ()

    def test_rejections(self, tmp_path):
        images = [
            {"id": 7, "file_name": "a.png", "width": 40, "height": 20},
            {"id": 8, "file_name": "a.png", "width": 20, "height": 40},
            {"id": 9, "file_name": "none.png", "width": 40, "height": 20},
            {"id": 10, "width": 40, "height": 20},
        ]
        annotations = [
            annotation(1),
            annotation(2, bbox=(4, 5, -3, 5)),
            annotation(image=8),
            annotation(image=9),
            annotation(image=10),
            annotation(3),
            "no record",
        ]
        tasks = load_tasks(coco(tmp_path, images, annotations))
        assert [task.id for task in tasks] == ["coco:7/cat"]
        assert reasons(tasks) == [
            ("instances.json:images[3]", "missing_key"),
            ("instances.json:annotations[6]", "wrong_type"),
            ("instances.json:annotations[4]", "unknown_id"),
            ("instances.json:annotations[5]", "unknown_id"),
            ("instances.json:7/fire hydrant", "swapped_corners"),
            ("instances.json:8/cat", "image_size"),
            ("instances.json:9/cat", "image_missing"),
        ]
        assert "20x40 px" in tasks.rejections[5].words
        assert "40x20 px when upright" in tasks.rejections[5].words

    def test_files_that_are_not_coco(self, tmp_path):
        config = coco(tmp_path, annotations=[annotation()])
        with pytest.raises(DataError, match="no such folder"):
            load_tasks(config.model_copy(update={"images": str(tmp_path / "nowhere")}))
        with pytest.raises(DataError, match=r"^none\.json: can't be read: No such file"):
            load_tasks(config.model_copy(update={"path": "none.json"}))
        for text, words in [
            ("{", "not JSON"),
            ("[]", "lists"),
            ('{"images": []}', "lists"),
            ("[" * 100_000, "not JSON"),
        ]:
            (tmp_path / "instances.json").write_text(text)
            with pytest.raises(DataError, match=words):
                load_tasks(config)
        twice = [{"id": 7, "file_name": "a.png", "width": 40, "height": 20}] * 2
        with pytest.raises(DataError, match="twice"):
            load_tasks(coco(tmp_path, twice, [annotation()]))
        with pytest.raises(DataError, match="no usable task"):
            load_tasks(coco(tmp_path))

    def test_the_four_photographs_of_the_recipes(self):
        tasks = load_tasks(CocoData(type="coco", path=str(PHOTOS / "instances.json"), images=str(PHOTOS)))
        assert tasks.rejections == ()
        truths = {task.id: task for task in tasks}
        assert set(truths) == {
            "coco:126107/boat", "coco:126107/bird", "coco:377575/dog", "coco:377575/fire hydrant", "coco:403353/bed",
            "coco:403353/book", "coco:525891/stop sign",
        }  # fmt: skip
        dog = truths["coco:377575/dog"]
        assert dog.images[0].pixels.size == (426, 640)
        assert dog.truth.box == pytest.approx((58.42 / 426, 159.35 / 640, 280.41 / 426, 622.8 / 640))
        box = [
            round(corner * side)
            for corner, side in zip(truths["coco:525891/stop sign"].truth.box, (640, 427) * 2, strict=True)
        ]
        red, green, blue = truths["coco:525891/stop sign"].images[0].pixels.crop(box).resize((1, 1)).getpixel((0, 0))
        assert red > 1.3 * max(green, blue)

    def test_their_licences(self):
        content = json.loads((PHOTOS / "instances.json").read_text())
        readme = (PHOTOS / "README.md").read_text()
        assert all(record["license"] == 4 and record["flickr_url"] in readme for record in content["images"])
        assert {record["file_name"] for record in content["images"]} == {path.name for path in PHOTOS.glob("*.jpg")}


class TestPrompt:
    def test_text(self):
        assert prompt_text("box {phrase}", "the {odd} cat") == "box the {odd} cat"
        assert prompt_text('{{"box"}} of {phrase}', "the cat") == '{"box"} of the cat'

    @pytest.mark.parametrize(
        "prompt", ["box it", "box {}", "box {thing}", "{phrase} {x}", "box {phrase", "{phrase:d}", "{phrase.x}"]
    )
    def test_faults(self, prompt):
        with pytest.raises(DataError, match=r"must hold \{phrase\}"):
            load_tasks(ScenesData(prompt=prompt))


class TestShortForm:
    def test_forms(self):
        assert parse_data("scenes:train") == ScenesData(split="train")
        assert parse_data("scenes:heldout") == ScenesData(split="heldout", num_scenes=2_000)
        assert parse_data("scenes:heldout?max_things=2&num_scenes=9").max_things == 2
        assert parse_data("a+b/photos.jsonl?space=pixel_original&order=xywh") == JsonlData(
            type="jsonl", path="a+b/photos.jsonl", space="pixel_original", order="xywh"
        )
        assert parse_data("i.json?images=x+y&prompt=find {phrase}") == CocoData(
            type="coco", path="i.json", images="x+y", prompt="find {phrase}"
        )

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("scenes:test", "unknown"),
            ("photos.csv", "unknown"),
            ("", "unknown"),
            ("photos.jsonl?space=unit", "order: Field required"),
            ("photos.jsonl?space=pixels&order=xywh", "space: Input should be 'unit'"),
            ("photos.jsonl?space=unit&order=xywh&path=b", "fixed by what stands before"),
            ("photos.jsonl?space=unit&space=percent&order=xywh", "given twice"),
            ("photos.jsonl?space=unit&order=xywh&spaces=unit", "spaces: Extra inputs"),
            ("i.json", "images: Field required"),
            ("scenes:train?split=heldout", "fixed by what stands before"),
            ("scenes:train?num_scenes=0", "num_scenes: Input should be greater"),
        ],
    )
    def test_faults(self, text, words):
        with pytest.raises(DataError, match=words) as caught:
            parse_data(text)
        assert "scenes:heldout" in str(caught.value)
        assert "FILE.json?images=FOLDER" in str(caught.value)


def test_a_description_of_what_was_left_out():
    assert describe_rejections((), 5) == ""
    rejections = [Rejection(f"p.jsonl:{line}", "image_missing", "") for line in (4, 9, 11, 30)]
    rejections.insert(0, Rejection("p.jsonl:2", "outside", ""))
    assert describe_rejections(rejections, 115) == (
        "5 of 120 rows left out: 4 image missing (p.jsonl:4, :9, :11, …), 1 outside (p.jsonl:2)"
    )

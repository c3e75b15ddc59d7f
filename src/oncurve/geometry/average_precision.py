"""Mean average precision of detections over a whole set, as COCO defines it. For evaluation, never for a reward."""

from collections.abc import Sequence

from oncurve.geometry.dialects import Found, same_label
from oncurve.truths import BoxesTruth


def average_precision(predictions: Sequence[Sequence[Found]], truths: Sequence[BoxesTruth]) -> dict[str, float]:
    """`map` (mean over the IoUs 0.50, 0.55 … 0.95), `map_50` and `map_75`, 0..1, one prediction list and truth an image.

    Classes are the truths' labels; without labels all boxes are of one class. Answers state no confidence, so a box
    ranks by its place in its answer, the first ones of all images before the second ones. At most 100 boxes an image
    count. Without any truth box the values are NaN. Computed by faster-coco-eval.
    """
    from faster_coco_eval import COCO, COCOeval_faster

    if not any(truth.boxes for truth in truths):
        return dict.fromkeys(("map", "map_50", "map_75"), float("nan"))
    classes = {label: n for n, label in enumerate(dict.fromkeys(same_label(x) for t in truths for x in _labels(t)), 1)}
    annotations = [
        {"image_id": image, "category_id": classes[same_label(label)], **_coco(box)}
        for image, truth in enumerate(truths)
        for box, label in zip(truth.boxes, _labels(truth), strict=True)
    ]
    labelled = any(truth.labels for truth in truths)
    detections = [
        {"image_id": image, "category_id": classes.get(name, len(classes) + 1), "score": 1 / (1 + place), **_coco(box)}
        for image, found in enumerate(predictions)
        for place, (box, label) in enumerate(found)
        if (name := same_label(label) if labelled and label else "") in classes
    ]
    if not detections:
        return dict.fromkeys(("map", "map_50", "map_75"), 0.0)
    truth_set = COCO()
    truth_set.dataset = {
        "images": [{"id": image} for image in range(len(truths))],
        "categories": [{"id": number, "name": label} for label, number in classes.items()],
        "annotations": [{"id": number, "iscrowd": 0, **a} for number, a in enumerate(annotations, 1)],
    }
    truth_set.createIndex()
    evaluation = COCOeval_faster(truth_set, truth_set.loadRes(detections), "bbox", print_function=lambda *_: None)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return dict(zip(("map", "map_50", "map_75"), map(float, evaluation.stats[:3]), strict=True))


def _labels(truth: BoxesTruth) -> tuple[str, ...]:
    return truth.labels or ("",) * len(truth.boxes)


def _coco(box: tuple[float, float, float, float]) -> dict[str, object]:
    width, height = box[2] - box[0], box[3] - box[1]
    return {"bbox": [box[0], box[1], width, height], "area": width * height}

"""What a configuration's schema allows at each place, read off its JSON schema."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oncurve.config.base import Section
from oncurve.config.locate import Path

Shape = dict[str, Any]  # a JSON schema without references; a value that may be absent counts as its other type

_KINDS = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "true or false"}


def shape_of(schema: type[Section]) -> Shape:
    """The shape of a whole configuration."""
    whole = schema.model_json_schema()
    return _inlined(whole, whole.get("$defs", {}))


def _inlined(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(part, definitions) for part in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        return _inlined(target, definitions) | {key: part for key, part in node.items() if key != "$ref"}
    if "anyOf" in node:
        (kept,) = (part for part in node["anyOf"] if part != {"type": "null"})
        return _inlined(kept, definitions) | {key: part for key, part in node.items() if key != "anyOf"}
    return {key: _inlined(part, definitions) for key, part in node.items() if key != "$defs"}


def members(shape: Shape) -> dict[str, Shape]:
    """The sections that a `type` chooses from, by that type; none where there is no choice."""
    return {member["properties"]["type"]["const"]: member for member in shape.get("oneOf", ())}


def section(shape: Shape, table: Mapping[str, Any]) -> Shape:
    """The shape of `table`: the member that its `type`, or else the default's, names. Empty where it names none."""
    if not (choices := members(shape)):
        return shape
    tag = table.get("type", shape.get("default", {}).get("type"))
    return choices.get(tag, {}) if isinstance(tag, str) else {}


def child(shape: Shape, key: str | int) -> Shape:
    """The shape of what a section holds at a key, or a list at an index; empty where nothing is allowed."""
    if isinstance(key, str):
        return shape.get("properties", {}).get(key, {})
    fixed = shape.get("prefixItems", ())
    return fixed[key] if key < len(fixed) else shape.get("items", {})


def homes(shape: Shape, key: str, path: Path = ()) -> Iterator[Path]:
    """The paths of the sections that take `key`."""
    for member in members(shape).values() or [shape.get("items", shape)]:
        properties = member.get("properties", {})
        if key in properties:
            yield path
        for name, part in properties.items():
            yield from homes(part, key, (*path, name))


def wanted(shape: Shape) -> str:
    """What a value must be, in words. Example: "a whole number of at least 2"."""
    if choices := shape.get("enum") or [shape[key] for key in ("const",) if key in shape]:
        return either(choices)
    if choices := members(shape):
        return f"a section with type = {either(choices)}"
    match shape["type"]:
        case "object":
            return "a section"
        case "array":
            least, most = shape.get("minItems", 0), shape.get("maxItems")
            number = f"{least}" if least == most else f"at least {least}" if least else ""
            if "properties" in (entry := child(shape, 0)):
                named = "section" if least == 1 else "sections"
                return f"{number} {named}, each under a [[header]] of its own".lstrip()
            return f"a list of {number or 'any length'}, each {wanted(entry)}"
        case kind:
            return _KINDS[kind] + _range(shape)


def _range(shape: Shape) -> str:
    if "minimum" in shape and "maximum" in shape:
        return f" from {shape['minimum']:g} to {shape['maximum']:g}"
    words = {
        "minimum": "of at least",
        "maximum": "of at most",
        "exclusiveMinimum": "above",
        "exclusiveMaximum": "below",
    }
    return "".join(f" {text} {shape[key]:g}" for key, text in words.items() if key in shape).replace(
        " below", " and below"
    )


def either(choices: Sequence[str] | Mapping[str, Any]) -> str:
    """Example: `"iou", "giou" or "diou"`."""
    *most, last = (f'"{choice}"' for choice in choices)
    return f"{', '.join(most)} or {last}" if most else last

"""The description of the service, for people who write programs."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pyg_glif.serve._loaded_fit import LoadedFit

Schema = Mapping[str, Any]
# A value of each kind of column, for examples.
_CELLS = {"number": 0.0, "duration": 1.0, "date": "2024-01-31"}


def routes_of(openapi: Schema, fit: LoadedFit, url: str) -> Iterator[dict[str, Any]]:
    """The routes of an OpenAPI description: fields, statuses and a call of each."""
    parts = openapi.get("components", {}).get("schemas", {})
    for path, methods in openapi["paths"].items():
        for method, one in methods.items():
            answers = one["responses"]
            yield {
                "method": method.upper(),
                "path": path,
                "summary": one["summary"],
                "body": list(_fields(_content(one.get("requestBody", {})), parts)),
                "answer": list(_fields(_content(answers.get("200", {})), parts)),
                "statuses": [
                    [status, _words(answer)] for status, answer in answers.items()
                ],
                "curl": _curl(method, f"{url}{path}", fit),
            }


def _content(one: Schema) -> Schema:
    """The schema of a body in JSON, empty if there is none."""
    found: Schema = one.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _words(answer: Schema) -> str:
    text = str(answer["description"])
    return "The answer." if text == "Successful Response" else text


def _resolved(schema: Schema, parts: Schema) -> Schema:
    while "$ref" in schema:
        schema = parts[schema["$ref"].rpartition("/")[2]]
    return schema


def _fields(schema: Schema, parts: Schema, prefix: str = "") -> Iterator[list[str]]:
    """Name, kind, whether it must be there, and meaning, of fields within fields."""
    schema = _resolved(schema, parts)
    needed = schema.get("required", ())
    for name, one in schema.get("properties", {}).items():
        kind, inner = _kind(one, parts)
        yield [
            f"{prefix}{name}",
            kind,
            "yes" if name in needed else "no",
            str(one.get("description", "")),
        ]
        lists = "[]" * kind.count("list of")
        yield from _fields(inner, parts, f"{prefix}{name}{lists}.")


def _kind(schema: Schema, parts: Schema) -> tuple[str, Schema]:
    """A schema in a few words, and that of the objects inside."""
    schema = _resolved(schema, parts)
    if "anyOf" in schema:
        found = [_kind(one, parts) for one in schema["anyOf"]]
        words = dict.fromkeys(kind for kind, _ in found)
        return " or ".join(words), next((one for _, one in found if one), {})
    kind: Any = schema.get("type", "anything")
    if kind == "array":
        word, inner = _kind(schema.get("items", {}), parts)
        most = schema.get("maxItems")
        size = "" if most is None else f"up to {most} "
        if most is not None and most == schema.get("minItems"):
            size = f"{most} "
        return f"list of {size}{word}", inner
    names = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    if isinstance(kind, list):
        return " or ".join(str(names.get(one, one)) for one in kind), {}
    return str(names.get(kind, kind)), schema if "properties" in schema else {}


def _curl(method: str, url: str, fit: LoadedFit) -> str:
    """A call of a route from a command line."""
    words = ["curl"]
    if fit.settings.token is not None:
        words += ["-H", "Authorization: Bearer TOKEN"]
    if method == "post":
        words += ["-H", "Content-Type: application/json"]
        words += ["-d", json.dumps(_example(fit))]
    return shlex.join([*words, url])


def _example(fit: LoadedFit) -> dict[str, Any]:
    """A request for one sample, by its columns where they have names."""
    width = fit.num_outputs
    y_hat: Any = 0.5 if width is None else [round(1 / width, 3)] * width
    if not fit.columns:
        return {"x": [[0.0] * fit.post.n_features_in_], "y_hat": [y_hat]}
    row = {
        one.name: one.values[0] if one.values else _CELLS.get(one.kind)
        for one in fit.columns
        if one.counts
    }
    return {"rows": [row], "y_hat": [y_hat]}

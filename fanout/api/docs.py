"""The page `/api/v1/docs`: the OpenAPI document as plain HTML. It runs no script, so that the site's content policy
needs no exception, and keyboards, screen readers and phones can use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase

Described = dict[str, Any]
FILE: Described = {"word": "a file", "name": ""}


class Page(DocsBase):
    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        document = api.get_openapi_schema()
        context = {
            "paragraphs": [" ".join(words.split()) for words in document["info"]["description"].strip().split("\n\n")],
            "document": self.get_openapi_url(api, kwargs),
            "tags": _tags(document),
            "schemas": {
                name: {"description": schema.get("description", ""), "fields": list(_fields(schema))}
                for name, schema in sorted(document["components"]["schemas"].items())
            },
        }
        return render(request, "crier/api_docs.html", context)


def _tags(document: Described) -> dict[str, list[Described]]:
    """Return the operations by their tag, in the order of the document."""
    tags: dict[str, list[Described]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    return tags


def _operation(method: str, path: str, operation: Described) -> Described:
    bodies = operation.get("requestBody", {}).get("content", {})
    answers = {
        status: [_type(kind.get("schema", {})) for kind in answer.get("content", {}).values()]
        for status, answer in operation["responses"].items()
        if status != "default"
    }
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "caption": f"Parameters of {method.upper()} {path}",
        "description": operation.get("description", ""),
        "parameters": [_parameter(one) for one in operation.get("parameters", [])],
        "bodies": [(kind, _type(body["schema"])) for kind, body in bodies.items()],
        "answers": [
            (status, kinds[0] if kinds else {"word": "a file", "name": ""}) for status, kinds in answers.items()
        ],
    }


def _parameter(one: Described) -> Described:
    words = one.get("description") or one["schema"].get("description", "")
    where = f"{one['in']}, required" if one.get("required") else one["in"]
    return {"name": one["name"], "where": where, "type": _type(one["schema"]), "description": words}


def _fields(schema: Described) -> Iterator[Described]:
    required = schema.get("required", [])
    for name, one in schema.get("properties", {}).items():
        where = "required" if name in required else ""
        yield {"name": name, "where": where, "type": _type(one), "description": one.get("description", "")}


def _type(schema: Described) -> Described:
    """Return a type in words, and the schema that it links to."""
    if "$ref" in schema:
        return {"word": "", "name": schema["$ref"].rpartition("/")[2]}
    if "items" in schema:
        inner = _type(schema["items"])
        return {"word": f"list of {inner['word']}".strip(), "name": inner["name"]}
    if kinds := schema.get("anyOf") or schema.get("allOf"):
        each = [_type(kind) for kind in kinds]
        words = " or ".join(one["word"] for one in each if one["word"])
        return {"word": words, "name": next((one["name"] for one in each if one["name"]), "")}
    if "enum" in schema:
        return {"word": "one of " + ", ".join(map(str, schema["enum"])), "name": ""}
    if isinstance(values := schema.get("additionalProperties"), dict):
        return {"word": f"object of {_type(values)['word']}", "name": ""}
    return {"word": " ".join(filter(None, (schema.get("type", "any"), schema.get("format", "")))), "name": ""}

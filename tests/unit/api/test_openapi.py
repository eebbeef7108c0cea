"""The OpenAPI document: valid, complete, and its examples are what it says."""

from __future__ import annotations

import jsonschema
import pytest
from openapi_spec_validator import validate

from services.api.examples import EXAMPLES
from services.api.field_descriptions import FIELDS, TAGS
from services.api.openapi import operations


@pytest.mark.requirement("C-01")
def test_the_document_is_valid(openapi_document):
    validate(openapi_document)


def test_every_operation_has_a_name_of_its_own_a_tag_and_words(openapi_document):
    names = [operation["operationId"] for _, _, operation in operations(openapi_document)]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)
    for _, _, operation in operations(openapi_document):
        assert set(operation["tags"]) <= set(TAGS)
        assert operation["description"]


def test_every_parameter_and_every_field_is_described(openapi_document):
    silent = [
        (operation["operationId"], one["name"])
        for _, _, operation in operations(openapi_document)
        for one in operation.get("parameters", [])
        if not one["description"]
    ]
    for name, schema in openapi_document["components"]["schemas"].items():
        silent += [(name, field) for field, said in schema.get("properties", {}).items() if not said.get("description")]
    assert silent == []
    used = {field for schema in openapi_document["components"]["schemas"].values() for field in schema.get("properties", {})}
    assert set(FIELDS) <= used


def test_every_problem_is_declared_where_it_can_occur(openapi_document):
    for path, verb, operation in operations(openapi_document):
        answers = set(operation["responses"])
        assert "default" not in answers
        open_to_all = path in ("/healthz", "/readyz")
        assert ("401" in answers) == (operation["security"] != []) == (not open_to_all)
        assert ("404" in answers) or "{" not in path
        assert ("409" in answers) == (verb != "get")


def test_examples_are_what_the_schemas_say(openapi_document):
    names = {operation["operationId"]: operation for _, _, operation in operations(openapi_document)}
    assert set(EXAMPLES) <= set(names)
    for name, example in EXAMPLES.items():
        operation = names[name]
        if "body" in example:
            for content in operation["requestBody"]["content"].values():
                check(openapi_document, content["schema"], content["example"])
        if "answer" in example:
            good = next(one for status, one in operation["responses"].items() if status.startswith("2"))
            check(openapi_document, good["content"]["application/json"]["schema"], example["answer"])
    without = {name for name, operation in names.items() if "requestBody" in operation and "body" not in EXAMPLES.get(name, {})}
    assert without == set()


def test_no_answer_that_is_shown_has_grown_old(openapi_document):
    """Its fields are those of today, no more and no fewer."""
    for _, _, operation in operations(openapi_document):
        for content in (one.get("content", {}).get("application/json", {}) for one in operation["responses"].values()):
            if "example" in content and "$ref" in content["schema"]:
                schema = openapi_document["components"]["schemas"][content["schema"]["$ref"].rsplit("/", 1)[1]]
                assert set(content["example"]) == set(schema["properties"]), operation["operationId"]


def check(document, schema, example):
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(example)

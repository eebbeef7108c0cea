"""The API reference: under the console's session and policy, without scripts, complete, and escaped."""

from __future__ import annotations

import re

import pytest

from services.api.app import create_app
from services.console.pages.reference import _render
from services.console.site import HEADERS
from tests.support.api_world import TOKEN, Client

pytestmark = pytest.mark.requirement("C-01", "C-09")


def test_the_reference_lists_every_operation_and_asks_no_other_origin(visitor, world):
    answer = visitor.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    for path, methods in world.app.openapi()["paths"].items():
        for method, operation in methods.items():
            assert f"<strong>{method.upper()}</strong> <code>{path}</code>" in answer.text
            assert f'id="{operation["operationId"]}"' in answer.text
    links = set(re.findall(r'(?:href|src|action)="([^"]*)"', answer.text))
    assert {link for link in links if not link.startswith(("/", "#"))} == set()
    ids = set(re.findall(r'\bid="([^"]*)"', answer.text))
    assert {link[1:] for link in links if link.startswith("#")} <= ids


def test_an_example_request_names_address_token_and_body(visitor):
    text = visitor.get("/docs").text.replace("&#34;", '"').replace("&#39;", "'")
    assert 'curl -X POST "$EYAS_URL/v1/recommend/NAME" \\\n  -H "Authorization: Bearer $EYAS_TOKEN"' in text
    assert 'curl -X POST "$EYAS_URL/v1/rollouts/ID:VERB"' in text
    assert '--data-binary \'{"user": 17' in text
    assert 'curl -X GET "$EYAS_URL/healthz"</pre>' in text


def test_who_is_not_signed_in_is_led_to_the_sign_in_page(site, stranger):
    answer = stranger.get("/docs")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=/docs")
    assert stranger.get("/openapi.json").status_code == 401


def test_redoc_and_the_parts_of_swagger_are_gone(visitor, stranger):
    for path in ("/redoc", "/docs/oauth2-redirect"):
        assert visitor.get(path).status_code == stranger.get(path).status_code == 404


def test_a_gateway_has_no_reference(world):
    app = create_app(world.app.state.door, None, world.gateway)
    for path in ("/docs", "/redoc"):
        assert Client(app).get(path).status_code == 401
        assert Client(app).get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 404


def test_text_of_the_document_is_escaped():
    markup = '"><script>pwned(1)</script>'
    operation = {"tags": [markup], "summary": markup, "description": markup, "operationId": markup, "security": [], "x-eyas-role": markup}
    operation |= {"parameters": [{"name": markup, "in": "path", "schema": {"enum": [markup]}, "description": markup}]}
    operation |= {"responses": {"200": {"description": markup, "content": {markup: {"schema": {"$ref": markup}}}}}}
    operation |= {"requestBody": {"content": {markup: {"schema": {"const": markup}, "example": {markup: markup}}}}}
    field = {"type": markup, "description": markup, "pattern": markup}
    schemas = {markup: {"description": markup, "properties": {markup: field}}, "Other": {"additionalProperties": {"type": markup}}}
    document = {
        "info": {"version": markup},
        "tags": [{"name": markup, "description": markup}],
        "paths": {f"/{markup}": {"post": operation}},
        "components": {"schemas": schemas},
    }
    text = _render(document)
    assert text.count("pwned(1)") > 20
    assert "<script" not in text

"""Trying a recommender: what a user is shown and how it came about, here or by the operator's gateway, and never by a visitor's address."""

from __future__ import annotations

import html
import re
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from services.api.app import create_app
from services.console import Site
from services.settings import Settings
from shared.domain.catalogue import ItemWrite
from shared.domain.entity_ids import IdKinds
from shared.domain.errors import Invalid, Unavailable
from shared.domain.sessions import session_id
from tests.support.api_world import NOW
from tests.unit.console.conftest import Visitor

pytestmark = pytest.mark.requirement("C-01")

EVIL = "<script>alert(1)</script>"
TRY = "/recommenders/m/try"


@pytest.fixture
def world(world):
    world.add_recommender()
    world.route()
    return world


def test_a_user_is_tried_and_each_stage_says_what_it_did(world, visitor):
    text = visitor.get(f"{TRY}?user=7&k=2&exclude=30,+31&context=%7B%22age%22%3A+30%7D").text
    assert world.gateway.asked == [("m", 7, 2, [30, 31], {"age": 30})]
    assert world.gateway.trials == [True]
    assert "User 7 gets 2 items from version 1 (stable)" in text
    assert "500 candidates" in text and "480 left" in text and "20 dropped: 20 by seen before, or excluded" in text
    assert "12.5 ms" in text
    assert "boosted" in text


def test_nothing_is_asked_before_somebody_asks(world, visitor):
    assert "Recommend" in visitor.get(TRY).text
    assert world.gateway.asked == []


def test_what_the_catalogue_knows_stands_beside_each_item(world, visitor):
    world.catalogue.put("m", [ItemWrite(10, {"title": EVIL, "genres": ["War", "Drama"]}, True)], NOW, True)
    text = visitor.get(f"{TRY}?user=7").text
    assert "War, Drama" in text
    assert EVIL not in text and "&lt;script&gt;" in text


def test_items_that_are_like_one(world, visitor):
    text = visitor.get(f"{TRY}?item=10").text
    assert "Items similar to item 10, by the vectors of version 1" in text
    assert f'href="{TRY}?item=20"' in text


def test_titles_stand_beside_ids(world, visitor):
    world.catalogue.put("m", [ItemWrite(10, {"title": EVIL, "year": 1999.0}, True), ItemWrite(20, {"name": "Alien"}, True)], NOW, True)
    text = visitor.get(f"{TRY}?item=10").text
    assert "Items similar to item 10 (&lt;script&gt;" in text
    assert 'item=20">20</a> Alien' in text and "name:" not in text
    assert EVIL not in text


HOST = "pictures.example"
SHOWN = ("https://pictures.example/a.png", "https://pictures.example/", "https://pictures.example/a/b%20c.jpg?w=64&h=64#x")
NOT_SHOWN = (
    *("https://other.example/a.png", "https://pictures.example.evil.example/a.png", "https://evil.example/https://pictures.example/a.png"),
    *("http://pictures.example/a.png", "javascript:alert(1)", "data:image/png;base64,AA==", "//pictures.example/a.png", "/static/a.png"),
    *(
        "https://ada:secret@pictures.example/a.png",
        "https://pictures.example@evil.example/a.png",
        "https://pictures.example\\@evil.example/",
    ),
    *("https://pictures.example:8443/a.png", "https://pictures.example:443/a.png", "https://PICTURES.example/a.png"),
    *("https://pictures.example", " https://pictures.example/a.png", "https://pictures.example/a b.png", "https://pictures.example/\n"),
    *('https://pictures.example/"onerror="alert(1)', "https://pictures.example./a.png", "https://pictures.example/\u202e.png", "", "x"),
)


def test_pictures_come_only_from_hosts_that_the_operator_allows(world, subtests):
    for hosts, address, is_shown in (
        *(((HOST,), address, True) for address in SHOWN),
        *(((HOST,), address, False) for address in NOT_SHOWN),
        *(((), address, False) for address in SHOWN),
    ):
        with subtests.test(hosts=hosts, address=address):
            for name in ("image", "picture"):
                world.catalogue.put("m", [ItemWrite(20, {name: address, "title": "Alien"}, True)], NOW, True)
                text = Visitor(Site(world.app, image_hosts=hosts)).get(f"{TRY}?user=7").text
                picture = re.findall(r'<img class="picture"[^>]*>', text)
                assert bool(picture) == is_shown
                if is_shown:
                    assert f'src="{html.escape(address)}" alt="picture of Alien"' in picture[0]
                    assert 'loading="lazy" referrerpolicy="no-referrer"' in picture[0]


def test_the_policy_allows_pictures_of_exactly_these_hosts(world):
    def sources(*hosts):
        answer = Visitor(Site(world.app, image_hosts=hosts)).get(TRY)
        return [part for part in answer.headers["content-security-policy"].split("; ") if part.startswith("img-src")]

    assert sources() == ["img-src 'self'"]
    assert sources("b.example", "a.example") == ["img-src 'self' https://a.example https://b.example"]


def test_hosts_of_pictures_are_names_of_hosts(subtests):
    assert Settings.read({"image_hosts": "a.example, b.example"}).image_hosts == ["a.example", "b.example"]
    assert Settings.read({}).image_hosts == []
    for wrong in ("https://a.example", "a.example:8443", "*.example", "a.example/x", "a.example;script-src *", "'self'"):
        with subtests.test(wrong=wrong), pytest.raises(Invalid, match="image_hosts: expected names of hosts"):
            Settings.read({"image_hosts": wrong})


FIELDS = (
    ("user=x", "user: &#39;x&#39; is not an integer id"),
    ("user=7&k=", "User 7 gets"),
    ("user=7&k=99999", "k"),
    ("user=7&exclude=a", "exclude items: &#39;a&#39; is not an integer id"),
    ("user=7&context=age", "expected a JSON object"),
    ("user=7&context=%5B1%5D", "expected a JSON object"),
    (f"user={EVIL}", "&lt;script&gt;"),
    (f"user=7&context={EVIL}", "&lt;script&gt;"),
    ("item=1e3", "item: &#39;1e3&#39; is not an integer id"),
)


def test_an_invalid_field_is_named_in_the_form(world, visitor, subtests):
    world.recommenders.fix_ids("m", IdKinds("integer", "integer"))
    for query, said in FIELDS:
        with subtests.test(query=query):
            answer = visitor.get(f"{TRY}?{query}")
            assert answer.status_code == 200
            assert said in answer.text
            assert EVIL not in answer.text


@pytest.mark.parametrize("error", [Invalid("serve.context: age is a number"), Unavailable("Triton doesn't answer")])
def test_what_the_gateway_refuses_is_told_beside_the_form(world, visitor, error):
    world.gateway.fails = error
    text = visitor.get(f"{TRY}?user=7").text
    assert str(error).replace("'", "&#39;") in text
    assert 'value="7"' in text


def test_a_viewer_is_told_what_it_takes(world, site):
    viewer = Visitor(site, world.holder("viewer")._headers["Authorization"].removeprefix("Bearer "))
    assert "needs the role operator" in viewer.get(f"{TRY}?user=7").text
    assert world.gateway.asked == []


def test_before_anything_serves_it_says_what_to_do(world, visitor):
    world.routes.rows.clear()
    assert "Nothing serves yet" in visitor.get(TRY).text


@pytest.fixture
def apart(world):
    """A control plane by itself."""
    return create_app(world.door(), world.parts(), None)


def test_without_a_gateway_it_says_what_is_missing(apart):
    assert "EYAS_GATEWAY_URL" in Visitor(Site(apart, None)).get(f"{TRY}?user=7").text


@contextmanager
def elsewhere(answers, status=200):
    """What answers there, and at which address."""

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self):
            content = answers(self.path, self.headers, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_gateway_elsewhere_is_asked_with_the_visitors_token(world, apart):
    asked = []

    def gateway(path, headers, body):
        asked.append((path, headers["Authorization"]))
        return world.client.post(path, content=body, headers={"Content-Type": "application/json"}).content

    with elsewhere(gateway) as url:
        text = Visitor(Site(apart, url)).get(f"{TRY}?user=7&gateway=http://evil.example").text
    assert "User 7 gets 2 items" in text
    ((path, header),) = asked
    assert path == "/v1/recommend/m?explain=true&trial=true"
    assert session_id(header.removeprefix("Bearer ")) is not None


def test_a_gateway_that_does_not_know_the_session_signs_nobody_out(apart):
    """During an upgrade it may run a release without sessions."""
    with elsewhere(lambda *_: b"{}", 401) as url:
        answer = Visitor(Site(apart, url)).get(f"{TRY}?user=7")
    assert "does not know this sign-in" in answer.text and "set-cookie" not in answer.headers


def test_what_answers_there_and_is_no_gateway_is_told_beside_the_form(apart):
    with elsewhere(lambda *_: b"<h1>Welcome to nginx!</h1>") as url:
        answer = Visitor(Site(apart, url)).get(f"{TRY}?user=7")
    assert answer.status_code == 200
    assert f"the server at {url} (EYAS_GATEWAY_URL) is not a gateway" in answer.text and 'value="7"' in answer.text


def test_a_gateway_that_does_not_answer_is_named(apart):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        text = Visitor(Site(apart, f"http://127.0.0.1:{taken.getsockname()[1]}")).get(f"{TRY}?user=7").text
    assert "(EYAS_GATEWAY_URL) does not answer" in text


def test_the_gateways_address_is_an_origin(subtests):
    for url in ("eyas-gateway:8080", "ftp://x:1", "http://user:secret@x:1", "http://x:1/path", "http://x:1?a=b", "http://"):
        with subtests.test(url=url), pytest.raises(Invalid, match="gateway_url"):
            Settings.read({"gateway_url": url})
    assert Settings.read({"gateway_url": "http://eyas-gateway:8080"}).gateway_url == "http://eyas-gateway:8080"

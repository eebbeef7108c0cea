"""`versions`, `tag`, `untag` and `history` on the command line."""

from __future__ import annotations

from collections import defaultdict

import pytest
from typer.testing import CliRunner

from services.cli.exit_codes import Exit
from services.cli.main import app

pytestmark = pytest.mark.requirement("G-11")

VERSION = {
    "version": 3,
    "aliases": ["serving"],
    "tags": ["champion"],
    "collected_at": None,
    "created_at": "2026-01-01T00:00:00Z",
    "run": "r3",
    "lineage": {"mode": "warm"},
    "parent": 2,
    "metrics": {"candidate.auc": 0.75, "popularity.auc": 0.5},
}


def test_versions_are_shown_with_what_they_are_called(platform, eyas):
    gone = {**VERSION, "version": 1, "aliases": [], "tags": [], "collected_at": "2026-02-01T00:00:00Z"}
    platform.says("GET /v1/recommenders/m/versions", {"items": [VERSION, gone], "next": None})
    lines = eyas("versions", "m").stdout.splitlines()
    assert lines[0].split() == ["VERSION", "NAMES", "REGISTERED", "RUN", "MODE", "PARENT", "METRICS"]
    assert "serving, champion" in lines[1]
    assert "auc 0.75" in lines[1]
    assert "collected" in lines[2]


def test_a_card_is_shown_by_whatever_the_version_is_called(platform, eyas):
    card = {
        "run": "r3",
        "data": {"rows": {"train": 800.0}, "oldest": "2026-01-01T00:00:00Z", "newest": None, "fingerprint": "sha256:ff"},
        "lineage": {"cause": "drift", "parent": 2},
        "fits": [
            {"stage": "train", "rows": 800, "newest": None, "epochs": None},
            {"stage": "refit", "rows": 1990, "newest": None, "epochs": 5},
        ],
        "metrics": {"auc": {"candidate": 0.75, "popularity": 0.5}},
        "gates": [{"gate": "auc at least 0.6", "verdict": "pass", "reason": "auc is 0.75 >= 0.6"}],
        "serving": {"parity": 1e-7},
        "files": {"model.onnx": 1 << 20},
    }
    platform.says("GET /v1/recommenders/m/versions/serving/card", card)
    said = eyas("card", "m", "serving").stdout
    assert said.startswith("m: run r3, drift, from version 2\ndata: 800 train; 2026-01-01 00:00:00 to ?; sha256:ff\n")
    for words in (
        ["auc", "0.75", "0.5", "-"],
        ["auc", "at", "least", "0.6", "pass", "auc", "is", "0.75", ">=", "0.6"],
        ["model.onnx", "1.0", "MiB"],
        ["refit", "(serves):", "1,990", "rows;", "newest", "?;", "epochs,", "sweeps", "or", "trees:", "5"],
        ["candidate", "(evaluated):", "800", "rows;", "newest", "?"],
    ):
        assert words in [line.split() for line in said.splitlines()]


@pytest.mark.parametrize("dots", [".", ".."])
def test_dots_are_a_tag_or_a_version_and_lead_to_nothing_else(platform, eyas, dots):
    for command, word in (("tag", "tags/"), ("untag", "tags/"), ("card", "versions/")):
        version = (3,) if word == "tags/" else ()
        platform.answers = defaultdict(lambda: [(404, {"type": "x/not-found", "detail": "no such thing"})])
        assert eyas(command, "m", *version, dots).exit_code == Exit.WRONG
        assert f"{word}{'%2E' * len(dots)}" in platform.asked[-1].url.raw_path.decode()


def test_a_tag_is_put_and_taken_away(platform, eyas):
    platform.says("PUT /v1/recommenders/m/versions/3/tags/champion", VERSION)
    platform.says("DELETE /v1/recommenders/m/versions/3/tags/champion", {**VERSION, "tags": []})
    assert eyas("tag", "m", 3, "champion").stdout == "m: version 3 is tagged champion\n"
    assert eyas("untag", "m", 3, "champion").stdout == "m: version 3 is no longer tagged champion\n"


def test_no_tag_leads_to_another_address(platform, eyas):
    platform.refuses("PUT /v1/recommenders/m/versions/3/tags/../../x", 422, "invalid", "tag '../../x': no")
    assert eyas("tag", "m", 3, "../../x").exit_code == 2
    assert platform.asked[-1].url.raw_path == b"/v1/recommenders/m/versions/3/tags/..%2F..%2Fx"


def test_the_history_is_shown_and_asked_for_a_time(platform, eyas):
    entry = {"generation": 2, "since": "2026-01-01T00:00:00Z", "until": None, "stable": 1, "candidate": 2, "weight": 0.2}
    platform.says("GET /v1/recommenders/m/history", {"items": [{**entry, "actor": "ada", "reason": "by hand"}], "next": None})
    lines = eyas("history", "m", "--at", "2026-01-01T12:00:00Z").stdout.splitlines()
    assert lines[1].split() == ["2", "2026-01-01", "00:00:00", "now", "1", "2", "0.2", "ada", "by", "hand"]
    assert platform.asked[-1].url.params["at"] == "2026-01-01T12:00:00Z"
    platform.says("GET /v1/recommenders/m/history", {"items": [], "next": None})
    assert eyas("history", "m").stdout == "m served nothing yet\n"


def test_a_collection_is_previewed(platform, eyas):
    counts = {"blobs": 3, "bytes": 1 << 21, "erased_bytes": 0}
    platform.says("POST /v1/gc", {"versions": [{"recommender": "m", "version": 1}], "attempts": ["r1-etl-1"], **counts})
    assert eyas("gc", "--dry-run").stdout.splitlines() == [
        "1 versions, 1 attempts and 3 files would move to the trash (2.0 MiB); the trash would free 0.0 MiB",
        "m version 1",
    ]
    assert platform.asked[-1].url.query == b"dry_run=true"


@pytest.mark.requirement("C-01")
def test_deleting_asks_first(platform, home):
    platform.says("DELETE /v1/recommenders/m", b"", status=204)
    refused = CliRunner().invoke(app, ["delete", "m"], input="n\n")
    assert (refused.exit_code, platform.asked) == (1, [])
    assert "Delete m?" in refused.output
    assert CliRunner().invoke(app, ["delete", "m"], input="y\n").output.endswith("m: deleted\n")
    assert CliRunner().invoke(app, ["delete", "m", "--yes"]).output == "m: deleted\n"
    assert [request.method for request in platform.asked] == ["DELETE", "DELETE"]

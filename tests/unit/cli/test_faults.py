"""Errors of the command line: each is one line on stderr, and the exit code says whose fault it is."""

from __future__ import annotations

import httpx
import pytest
from typer.core import TyperGroup
from typer.main import get_command

from services.cli.exit_codes import Exit
from services.cli.main import app
from tests.support.secret_files import write_secret


def one_line(result, code):
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("eyas: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_platform_that_does_not_run_is_said_with_how_to_start_it(platform, eyas):
    platform.says("GET /v1/recommenders/m/runs", httpx.ConnectError("refused"))
    said = one_line(eyas("runs", "m"), Exit.AWAY)
    assert "nothing answers at http://127.0.0.1:8080" in said
    assert "eyas up" in said


def test_the_users_fault_is_two_and_the_platforms_is_three(platform, eyas):
    platform.refuses("GET /v1/recommenders/m/runs", 404, "not-found", "no recommender is called 'm'")
    assert one_line(eyas("runs", "m"), 2) == "eyas: not-found: no recommender is called 'm': list recommenders with `eyas recommenders`\n"
    platform.refuses("GET /v1/recommenders/m/runs", 503, "unavailable", "the store\nis away")
    assert one_line(eyas("runs", "m"), Exit.AWAY) == "eyas: unavailable: the store is away\n"


def test_a_wrong_token_names_the_option_that_mends_it(platform, eyas):
    platform.refuses("GET /v1/recommenders/m/runs", 401, "unauthenticated", "no")
    assert "--token-file" in one_line(eyas("runs", "m"), 2)


def test_a_missing_token_says_where_it_was_looked_for(home, eyas):
    (home / "token").unlink()
    said = one_line(eyas("runs", "m"), 2)
    assert str(home / "token") in said
    assert "eyas up" in said


def test_an_unusable_token_is_refused(home, eyas, subtests):
    for token in ("", "\xff", "two\nlines"):
        with subtests.test(token=token):
            write_secret(home / "token", token)
            assert "no usable token" in one_line(eyas("runs", "m"), 2)


def test_a_token_that_other_users_can_read_is_refused(home, eyas):
    (home / "token").chmod(0o644)
    assert f"{home / 'token'}: other users can open it (mode 0644); run: chmod 600 {home / 'token'}" in one_line(eyas("runs", "m"), 2)


def test_another_server_on_that_port_is_recognised(platform, eyas, subtests):
    for status, answer in ((500, b"<html>"), (500, b"[]"), (500, b'"x"'), (200, b"<html>")):
        with subtests.test(status=status, answer=answer):
            platform.says("GET /v1/recommenders/m/runs", answer, status=status)
            assert "is it an Eyas platform?" in one_line(eyas("runs", "m"), Exit.AWAY)


def test_an_invalid_url_is_refused(eyas, subtests):
    for url in ("ftp://x", "nonsense", "http://[", "http://", "http://a b", "http://x:99999", "http://x:y"):
        with subtests.test(url=url):
            assert url in one_line(eyas("--url", url, "runs", "m"), 2)


def test_no_answer_in_time_is_said_as_what_it_is(platform, eyas):
    platform.says("GET /v1/recommenders/m/runs", httpx.ReadTimeout("slow"))
    assert "did not answer" in one_line(eyas("runs", "m"), Exit.AWAY)


def test_an_answer_that_nobody_foresaw_is_no_traceback(platform, eyas):
    platform.says("GET /v1/recommenders/m/runs", {"surprise": True})
    assert "KeyError" in one_line(eyas("runs", "m"), Exit.AWAY)


def test_the_address_comes_from_the_option_the_environment_or_the_platforms_own_note(platform, eyas, home, monkeypatch):
    platform.says("GET /v1/recommenders/m/runs", {"items": [], "next": None})

    def host(*arguments):
        assert eyas(*arguments, "runs", "m").exit_code == 0
        return str(platform.asked[-1].url).split("/v1")[0]

    assert host() == "http://127.0.0.1:8080"
    (home / "endpoint.json").write_text('{"url": "http://127.0.0.1:9999"}')
    assert host() == "http://127.0.0.1:9999"
    monkeypatch.setenv("EYAS_URL", "http://there:1")
    assert host() == "http://there:1"
    assert host("--url", "http://here:2") == "http://here:2"
    assert platform.asked[-1].headers["authorization"] == "Bearer a-token"


def test_a_broken_endpoint_file_is_ignored(platform, eyas, home, subtests):
    platform.says("GET /v1/recommenders/m/runs", {"items": [], "next": None})
    for count, text in enumerate(("", "[]", '{"url": 1}', "{}"), 1):
        with subtests.test(text=text):
            (home / "endpoint.json").write_text(text)
            assert eyas("runs", "m").exit_code == 0
            assert (len(platform.asked), platform.asked[-1].url.port) == (count, 8080)


NAMED = [
    ["run", "*"],
    ["runs", "*"],
    ["versions", "*"],
    ["card", "*", "1"],
    ["tag", "*", "1", "x"],
    ["untag", "*", "1", "x"],
    ["history", "*"],
    ["rollback", "*"],
    ["delete", "*", "--yes"],
    ["recommend", "*", "1"],
    ["similar", "*", "1"],
    ["events", "*", "/dev/null"],
    ["export-events", "*", "events.jsonl"],
    ["kpis", "*"],
    ["drift", "*"],
    ["triggers", "*"],
    ["retrain", "*"],
    ["cancel", "*"],
    ["retry", "*"],
    ["prioritise", "*", "1"],
    ["plan", "*"],
    ["compare", "*", "r1"],
    ["compare", "r1", "*"],
    ["logs", "*"],
    ["validation", "*"],
    ["evaluation", "*"],
    ["watch", "*"],
    ["tokens", "revoke", "*"],
    ["items", "put", "*", "/dev/null"],
    ["items", "get", "*", "1"],
    ["items", "list", "*"],
    ["items", "delete", "*", "1"],
    ["features", "list", "*"],
    ["features", "get", "*", "user", "1"],
    ["features", "get", "m", "*", "1"],
    ["features", "put", "*", "user", "/dev/null"],
    ["features", "materialise", "*"],
    ["rollout", "start", "*", "1"],
    *(["rollout", verb, "*"] for verb in ("status", "pause", "resume", "skip", "promote", "abort")),
    *(["rollout", verb, "m", "--id", "*"] for verb in ("status", "pause", "resume", "skip", "promote", "abort")),
]


INVALID = ("../x", "a?b", "a/b", "a:b", "a#b", "a%2fb", "A", "", "..", "m\n", "../recommenders/m:rollback?x=")
"""Names and ids that would change the path or the query of a request."""


@pytest.mark.parametrize("command", NAMED, ids=" ".join)
def test_an_invalid_name_or_id_is_refused_before_a_request(platform, eyas, command, subtests):
    for invalid in INVALID:
        with subtests.test(invalid=invalid):
            platform.asked.clear()
            said = one_line(eyas(*(invalid if word == "*" else word for word in command)), 2)
            assert repr(invalid) in said.replace("\\\\", "\\")
            assert platform.asked == []


def test_no_command_that_takes_a_name_or_id_is_missing_above():
    def takes(command, words):
        if isinstance(command, TyperGroup):
            return {found for name, one in command.commands.items() for found in takes(one, (*words, name))}
        return {words} if {one.name for one in command.params} & {"name", "id", "target"} and words != ("init",) else set()

    listed = {tuple(one[:2]) if one[0] in ("rollout", "tokens", "items", "features") else (one[0],) for one in NAMED}
    assert takes(get_command(app), ()) == listed


def test_an_id_that_the_platform_made_up_is_refused_too(platform, eyas):
    platform.says("GET /v1/recommenders/m/rollouts", {"items": [{"id": "../x"}]})
    assert "'../x' is not an id" in one_line(eyas("rollout", "abort", "m"), 2)
    assert len(platform.asked) == 1


def test_events_of_an_empty_file_still_need_a_recommender(platform, eyas, tmp_path):
    (tmp_path / "e.jsonl").write_text("\n")
    platform.refuses("GET /v1/recommenders/m", 404, "not-found", "no recommender is called 'm'")
    assert "no recommender is called 'm'" in one_line(eyas("events", "m", tmp_path / "e.jsonl"), 2)
    platform.says("GET /v1/recommenders/m", {"name": "m"})
    assert eyas("events", "m", tmp_path / "e.jsonl").stdout == "m: 0 events accepted, 0 answers became hits\n"


def test_an_argument_that_is_no_text_is_refused_before_anything_is_sent(platform, eyas):
    assert "not UTF-8" in one_line(eyas("rollback", "m", "--reason", "a\udcffb"), 2)
    assert platform.asked == []

"""Hints after a typing error: commands, options, names of recommenders, ids of runs."""

from __future__ import annotations

import httpx

from services.cli.exit_codes import Exit

GONE = "no recommender is called"


MISTYPED = (
    (["rns", "m"], "`eyas` has no command 'rns': did you mean 'runs'?"),
    (["versoins"], "`eyas` has no command 'versoins': did you mean 'versions'?"),
    (["rollout", "statsu", "m"], "`eyas rollout` has no command 'statsu': did you mean 'status'?"),
    (["reco"], "`eyas` has no command 'reco': did you mean"),
    (["xyzzy"], "`eyas` has no command 'xyzzy': `eyas --help` lists them"),
    (["runs", "m", "--limt", "3"], "`eyas runs` has no option --limt: did you mean '--limit'?"),
    (["runs", "m", "--xyzzy"], "`eyas runs` has no option --xyzzy: `eyas runs --help` lists them"),
    (["--tokn", "x", "runs", "m"], "`eyas` has no option --tokn: did you mean '--token'?"),
    (["run", "m", "--mode", "wram"], "invalid value for '--mode'"),
    (["runs"], "missing argument 'NAME' (see `eyas runs --help`)"),
    (["runs", "m", "n"], "(see `eyas runs --help`)"),
)


def test_a_mistyped_line_gets_one_line_with_a_hint(eyas, subtests):
    for words, said in MISTYPED:
        with subtests.test(words=words):
            found = eyas(*words)
            assert (found.exit_code, found.stdout) == (Exit.WRONG, "")
            assert said in found.stderr
            assert found.stderr.count("\n") == 1


def refused(platform, *names):
    platform.refuses("GET /v1/recommenders/moveis/runs", 404, "not-found", f"{GONE} 'moveis'")
    platform.says("GET /v1/recommenders", {"items": [{"name": one} for one in names], "next": None})


def test_a_name_is_met_by_the_nearest_one(platform, eyas):
    refused(platform, "books", "movies", "music")
    assert eyas("runs", "moveis").stderr == f"eyas: not-found: {GONE} 'moveis': did you mean 'movies'?\n"


def test_where_none_is_near_a_few_are_named_and_many_are_not(platform, eyas):
    refused(platform, "books", "songs")
    assert eyas("runs", "moveis").stderr.endswith(": known: books, songs\n")
    refused(platform, *(f"shop-{number}" for number in range(50)))
    assert eyas("runs", "moveis").stderr.endswith(": list recommenders with `eyas recommenders`\n")


def test_a_run_is_met_by_the_one_that_begins_so(platform, eyas):
    platform.refuses("GET /v1/runs/r01m7z/validation", 404, "not-found", "no run is called 'r01m7z'")
    platform.says("GET /v1/runs", {"items": [{"id": "r01m7z2yyn7qyezgy"}, {"id": "r01k000000000000a"}], "next": None})
    assert eyas("validation", "r01m7z").stderr.endswith(": did you mean 'r01m7z2yyn7qyezgy'?\n")


def test_what_is_not_there_of_a_good_name_brings_no_hint(platform, eyas):
    platform.refuses("GET /v1/recommenders/m/versions/9/card", 404, "not-found", "recommender 'm' has no version 9")
    platform.says("GET /v1/recommenders", {"items": [{"name": "m"}], "next": None})
    assert eyas("card", "m", "9").stderr == "eyas: not-found: recommender 'm' has no version 9\n"


def test_without_a_hint_the_error_stays_as_it_is(platform, eyas, subtests):
    for answer in (httpx.ReadTimeout("slow"), b"<html>", {"items": 1}, []):
        with subtests.test(answer=answer):
            refused(platform)
            platform.says("GET /v1/recommenders", answer)
            assert eyas("runs", "moveis").stderr == f"eyas: not-found: {GONE} 'moveis': list recommenders with `eyas recommenders`\n"

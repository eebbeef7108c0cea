"""The dashboards as files: whole, explained, of metrics that are exported, in units that fit. A real Prometheus is asked elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.board import DOCS
from dashboards.boards import BOARDS, FILES
from tests.chart.helm import template
from tests.support.dashboards import FOLDER, asked, panels, read
from tests.support.promql import faults, known, selectors, unit

HOW_TO = Path(__file__).parents[2] / "docs/how-to"
ALLOWED: dict[str, list[dict[str, int]]] = {
    "s": [{"s": 1}],
    "percentunit": [{}],
    "bytes": [{"B": 1}],
    "short": [{"n": 1}],
    "cps": [{"n": 1, "s": -1}],
    "reqps": [{"n": 1, "s": -1}],
    "suffix: bits": [{"bit": 1}],
    "none": [{"plain": 1}, {}],
}
"""By Grafana's units, what may be shown in them; a number without a unit is one of its own, or cores in use."""
EVERY = [pytest.param(name, id=name.removesuffix(".json")) for name in FILES]


def every_panel() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in FILES:
        for panel in panels(read(name)):
            yield f"{name}: {panel['title']}", panel


def test_the_chart_carries_exactly_these_files() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(FILES)
    assert {one.name for one in BOARDS} == {"quality", "rollout", "pipelines", "drift", "serving", "platform"}


@pytest.mark.parametrize("name", EVERY)
def test_a_file_is_the_same_bytes_each_time_and_the_sdk_reads_what_it_wrote(name: str) -> None:
    text = FILES[name]()
    assert text == FILES[name]() == (FOLDER / name).read_text()
    document = json.loads(text)
    marks = document["annotations"].pop("list", [])
    again = json.loads(json.dumps(Dashboard.from_json(document), cls=JSONEncoder))
    assert again == document
    for mark in marks:
        assert {"name", "expr", "titleFormat", "step", "useValueForTime"} <= mark.keys()


def test_panels_say_what_they_show_in_which_unit_and_where_to_turn() -> None:
    words = {one for one in vars(units).values() if isinstance(one, str)}
    for where, panel in every_panel():
        assert len(panel["description"]) > 10 and panel["description"].endswith("."), where
        shown = panel["fieldConfig"]["defaults"]["unit"]
        assert shown in words or shown.startswith("suffix:"), where
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, where
        assert panel["targets"], where
        (link,) = panel["links"]
        assert link["url"].startswith("${docs}/how-to/"), where
        page, _, anchor = link["url"].removeprefix("${docs}/how-to/").partition("#")
        assert not anchor or anchor in anchors(HOW_TO / page), f"{where}: {link['url']}"
        assert (HOW_TO / page).is_file(), where


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_names_of_panels_and_boards_stand_once() -> None:
    assert len({read(name)["uid"] for name in FILES}) == len(FILES)
    for name in FILES:
        titles = [panel["title"] for panel in panels(read(name))]
        assert len(titles) == len(set(titles)), name


def test_panels_lie_beside_each_other_and_not_upon() -> None:
    for name in FILES:
        taken: set[tuple[int, int]] = set()
        for panel in read(name)["panels"]:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24, panel["title"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, f"{name}: {panel['title']} lies upon another"
            taken |= cells


def test_each_board_lets_choose_its_data_source_and_marks_what_changed() -> None:
    for name in FILES:
        variables = {one["name"]: one for one in read(name)["templating"]["list"]}
        assert variables["datasource"]["query"] == "prometheus"
        assert ("recommender" in variables) == (name != "platform.json")
        assert "docs" in variables
        assert bool(read(name)["annotations"].get("list")) == (name != "platform.json")


@pytest.mark.requirement("C-08")
@pytest.mark.parametrize("board", sorted({one.board for one in asked()}))
def test_questions_name_exported_metrics_with_their_labels_in_a_unit_that_fits(board: str, subtests: pytest.Subtests) -> None:
    for one in asked():
        if one.board == board:
            with subtests.test(str(one)):
                assert faults(one.question) == []
                if one.unit is not None:
                    assert unit(one.question) in ALLOWED[one.unit], f"{unit(one.question)} isn't shown in {one.unit}"


def test_every_metric_that_is_exported_is_on_a_panel() -> None:
    """A histogram by its buckets, its sum or its count."""
    asked_for = {str(selector.name) for one in asked() for selector in selectors(one.question)}
    series = {name for name in known() if name.startswith("eyas_")} - {"eyas_triton_successes"}  # Triton's own stands for it
    assert {name for name in series if not any(one.startswith(re.sub("_(bucket|sum|count)$", "", name)) for one in asked_for)} == set()


def test_every_metric_of_a_question_is_found_by_the_parser() -> None:
    """However it is written: with a range, an offset, in a subquery, by its label."""
    question = "rate(a[5m]) + b offset 1d + max_over_time(c[1h:1m]) + sum(d{x='eyas_e'}) / on (job) group_left (f) -g"
    assert [one.name for one in selectors(question)] == ["a", "b", "c", "d", "g"]


def test_a_misspelt_metric_or_label_is_caught(subtests: pytest.Subtests) -> None:
    for question, message in (
        ("max(eyas_hit_rates)", "unknown metric eyas_hit_rates"),
        ("rate(eyas_runs[5m])", "unknown metric eyas_runs"),
        ("sum(rate(eyas_recommend_seconds{le='1'}[5m]))", "unknown metric eyas_recommend_seconds"),
        ('max(eyas_hit_rate{reccomender="a"})', "eyas_hit_rate has no label reccomender"),
        ("sum by (stages) (eyas_stages_reused_total)", "nothing below has a label stages"),
        ("rate(nv_inference_request_sucess[5m])", "unknown metric nv_inference_request_sucess"),
    ):
        with subtests.test(question):
            (fault,) = faults(question)
            assert fault.startswith(message)


def test_only_units_that_fit_are_taken(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, set[str]]] = [
        ("max(eyas_hit_rate)", {"percentunit", "none"}),
        ("sum(rate(eyas_recommend_requests_total[1m]))", {"reqps", "cps"}),
        ("histogram_quantile(0.9, sum by (le) (rate(eyas_stage_seconds_bucket[1m])))", {"s"}),
        ("sum(rate(eyas_stage_seconds_sum[1m])) / sum(rate(eyas_stage_seconds_count[1m]))", {"s"}),
        ("sum(eyas_stage_seconds_sum) / sum(eyas_stage_seconds_count)", {"s"}),
        ("sum(rate(eyas_stage_seconds_count[1m]))", {"reqps", "cps"}),
        ("rate(nv_inference_queue_duration_us[1m]) / rate(nv_inference_request_success[1m]) / 1000000", {"s"}),
        ("rate(nv_inference_queue_duration_us[1m]) / rate(nv_inference_request_success[1m])", set()),
        ("max(eyas_catalogue_bytes)", {"bytes"}),
        ("sum(rate(eyas_runs_total[1m])) / sum(rate(eyas_hits_total[1m]))", {"percentunit", "none"}),
        ("max(eyas_serving_version)", {"none"}),
    ]
    for question, fitting in rows:
        with subtests.test(question):
            assert {name for name, taken in ALLOWED.items() if unit(question) in taken} == fitting


def test_what_is_no_question_is_told() -> None:
    with pytest.raises(ValueError, match=r"expected|unexpected|unclosed|parenthes"):
        promql_parser.parse("sum(rate(eyas_runs_total[5m])")


def maps(**said: Any) -> list[dict[str, Any]]:
    found = template(monitoring={"dashboards": said})
    return [one for one in found if one["kind"] == "ConfigMap" and "grafana_dashboard" in one["metadata"]["labels"]]


@pytest.mark.requirement("C-08")
def test_the_chart_has_them_where_they_are_wanted_for_grafanas_sidecar_and_else_not() -> None:
    assert maps() == []
    found = maps(enabled=True, annotations={"grafana_folder": "Eyas"})
    assert {name: text for one in found for name, text in one["data"].items()} == {name: make() for name, make in FILES.items()}
    assert {one["metadata"]["annotations"]["grafana_folder"] for one in found} == {"Eyas"}


def test_links_of_panels_lead_to_where_the_documents_are() -> None:
    place = "https://wiki.example.org/eyas"
    for one in maps(enabled=True, docs=place):
        for text in one["data"].values():
            assert DOCS not in text
            (docs,) = [variable for variable in json.loads(text)["templating"]["list"] if variable["name"] == "docs"]
            assert docs["query"] == docs["current"]["value"] == place

"""Pictures hold their numbers, and nothing that anybody named becomes markup."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.console.charts import (
    Axis,
    ChartInterval,
    ChartLine,
    ChartPoint,
    EventMark,
    ShadedPeriod,
    bars,
    intervals,
    spark,
    timeline,
    with_unit,
)

EVIL = '"><script>alert(1)</script><img onerror=x>&'
numbers = st.floats(-1e6, 1e6)


def parsed(picture):
    return ET.fromstring(f"<div>{picture}</div>")


def percent(shape, name):
    assert shape.get(name).endswith("%")
    return float(shape.get(name)[:-1])


@given(st.lists(st.one_of(st.none(), numbers), max_size=40), st.text(max_size=20).filter(lambda text: text.isprintable()))
def test_any_small_line_is_well_formed_and_stays_inside(values, label):
    picture = parsed(spark(values, label))
    for shape in picture.iter("polyline"):
        for pair in shape.get("points").split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= 120 and 0 <= y <= 28


@given(st.lists(st.tuples(st.floats(0, 4e9), numbers), min_size=1, max_size=30), st.booleans())
def test_any_timeline_is_well_formed_and_stays_inside(pairs, clock):
    line = ChartLine("v", [ChartPoint(x, y, y - 1, y + 1) for x, y in sorted(pairs)])
    picture = parsed(
        timeline([line], "hits", [EventMark(pairs[0][0], "a")], [ShadedPeriod(pairs[0][0], pairs[0][0] + 5)], axis=Axis(clock=clock))
    )
    for dot in picture.iter("circle"):
        assert 0 <= percent(dot, "cx") <= 100 and 0 <= float(dot.get("cy")) <= 260
    for shape in picture.iter("polyline"):
        for pair in shape.get("points").split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= 1000 and 0 <= y <= 260
    assert len(list(picture.iter("circle"))) == len(pairs)


def test_names_and_reasons_stay_text():
    pictures = [
        spark([1, 2], EVIL),
        timeline([ChartLine(EVIL, [ChartPoint(1, 1), ChartPoint(2, 2)])], EVIL, [EventMark(1, EVIL, EVIL, EVIL)], levels=[(1.5, EVIL)]),
        bars([(EVIL, 0.5, 0.25)], EVIL, (EVIL, EVIL)),
        intervals([ChartInterval(EVIL, 0.5, 0.4, 0.6)], EVIL, EVIL),
    ]
    for picture in pictures:
        assert {one.tag for one in parsed(picture).iter()} <= {
            "div",
            "span",
            "svg",
            "polyline",
            "circle",
            "title",
            "g",
            "line",
            "text",
            "rect",
        }
        assert EVIL not in str(picture)


def test_nothing_known_is_a_dash_or_nothing():
    assert "svg" not in spark([None, None], "x")
    assert timeline([], "x") == "" == bars([], "x", ("a", "b")) == intervals([ChartInterval("v", None)], "x")


def test_a_small_line_has_its_lowest_highest_and_last_value_as_text():
    drawn_texts = "".join(parsed(spark([0.034, None, 0.051, 0.042], "hit rate")).itertext())
    assert drawn_texts == "lowest 3.4 %, highest 5.1 %, last 4.2 %"
    assert "lowest 3 ms, highest 9 ms, last 3 ms" in spark([9, 3], "latency", "ms")


def test_intervals_stand_at_their_values_with_their_numbers_as_text():
    rows = [ChartInterval("this run", 0.5, 0.4, 0.6), ChartInterval("serving version", 0.45), ChartInterval("popularity", None)]
    picture = parsed(intervals(rows, "hr@10"))
    first, second = picture.iter("circle")
    bounds = next(line for line in picture.iter("line") if "hue0" in line.get("class"))
    assert percent(bounds, "x1") < percent(second, "cx") < percent(first, "cx") < percent(bounds, "x2")
    drawn_texts = [text.text for text in picture.iter("text")]
    assert "0.5 (0.4 to 0.6)" in drawn_texts and "0.45" in drawn_texts and "this run" in drawn_texts and "\u2013" in drawn_texts
    assert {"0.4", "0.6"} <= set(drawn_texts), "the scale"


def test_axes_have_names():
    line = ChartLine("v", [ChartPoint(1, 1), ChartPoint(2, 2)])
    drawn_texts = [text.text for text in parsed(timeline([line], "x", axis=Axis("", False, "loss", "epoch"))).iter("text")]
    assert {"loss", "epoch", "1", "2"} <= set(drawn_texts)


@pytest.mark.parametrize("low, high", [(0, 1), (0.6434, 0.6435), (0, 1e-9), (-5, 5e6)])
def test_an_axis_holds_its_values_between_few_round_numbers(low, high):
    picture = parsed(timeline([ChartLine("v", [ChartPoint(0, low), ChartPoint(10, high)])], "x", axis=Axis(unit="", clock=False)))
    assert 3 <= len([one for one in picture.iter("line") if one.get("class") == "grid"]) <= 8


def test_letters_that_are_close_stand_above_each_other():
    marks = [EventMark(x, "a", letter="A") for x in (100, 100, 101, 900)]
    picture = parsed(timeline([ChartLine("v", [ChartPoint(0, 1), ChartPoint(1000, 2)])], "x", marks, axis=Axis(clock=False)))
    heights = [float(text.get("y")) for text in picture.iter("text") if text.text == "A"]
    assert heights[0] > heights[1] > heights[2] and heights[3] == heights[0]
    _, top = picture.find("svg/g").get("transform")[:-1].split()
    assert heights[2] + float(top) > 8, "the highest one is not cut off"


def test_a_picture_can_span_more_than_it_shows():
    narrow = parsed(timeline([ChartLine("v", [ChartPoint(4, 1), ChartPoint(6, 2)])], "x", axis=Axis(clock=False, span=(0, 10))))
    xs = [percent(dot, "cx") for dot in narrow.iter("circle")]
    assert xs == [40, 60]


def test_one_look_alone_stands_in_the_middle_with_its_bounds():
    picture = parsed(timeline([ChartLine("v", [ChartPoint(5, 0.5, 0.25, 0.75)])], "x", axis=Axis(unit="", clock=False)))
    bounds = next(one for one in picture.iter("line") if "hue0" in one.get("class"))
    dot = next(picture.iter("circle"))
    assert float(bounds.get("x1")) == float(bounds.get("x2")) == 500 and percent(dot, "cx") == 50
    assert float(bounds.get("y2")) < float(dot.get("cy")) < float(bounds.get("y1"))


def test_large_values_have_no_exponent():
    values = ((12.5, "%"), (-2.5, "%"), (0.1234, "%"), (1_250, ""), (0.00012345, ""), (2e6, "ms"))
    texts = [with_unit(value, unit) for value, unit in values]
    assert texts == ["1,250 %", "-250 %", "12.3 %", "1,250", "0.000123", "2e+06 ms"]

"""A small shop with data and a spec, and mistakes in both: eight classes of five, each with the line and the words of its error."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SPEC = """\
apiVersion: eyas/v1
name: shop
data:
  interactions: {uri: events.csv, since: 3650d}
  items: {uri: items.csv, key: sku}
  users: {uri: users.csv, key: customer}
schema:
  user: customer
  item: sku
  time: at
  label:
    column: stars
    positive: ">= 4"
features:
  - {categorify: [customer, sku]}
  - {categorify: category}
  - {fill: price, with: mean}
  - {multi_hot: tags, separator: "|"}
split: {by: time, test: 20%}
model:
  family: ease
gates:
  - {metric: hr@10, not_worse_than: popularity, by: 20%, min_users: 10}
  - {parity: 1e-4}
serve:
  filter:
    - {available: true}
    - category != 'toys'
rollout: {steps: [10%, 50%]}
"""
LINES = SPEC.split("\n")


def write_shop(folder: Path) -> None:
    """Writes the shop's files and its spec."""
    seeded = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    events = ["customer,sku,at,stars,channel"]
    for number in range(1_500):
        at = f"2026-{1 + number // 200:02}-{1 + number % 28:02}T{number % 24:02}:00:00Z"
        events.append(f"{seeded.randrange(60)},{seeded.randrange(40)},{at},{seeded.randint(1, 5)},web")
    (folder / "events.csv").write_text("\n".join(events) + "\n")
    categories = ("books", "games", "music", "toys")
    items = [f"{sku},{categories[sku % 4]},{sku * 1.5},red|tag{sku % 3},Title {sku}" for sku in range(40)]
    (folder / "items.csv").write_text("\n".join(["sku,category,price,tags,title", *items]) + "\n")
    (folder / "users.csv").write_text("\n".join(["customer,country", *(f"{user},DE" for user in range(60))]) + "\n")
    (folder / "shop.yaml").write_text(SPEC)


@dataclass(frozen=True)
class Mistake:
    """`before` and `after`: the change of the spec. `spoil`: a change of the data. `line`: where `plan` says it is. `says`: words of the
    error; `near`: the nearest valid name or setting that it gives."""

    kind: str
    line: int
    says: str
    near: str
    before: str = ""
    after: str = ""
    spoil: Callable[[Path], None] | None = None

    def write(self, folder: Path) -> Path:
        write_shop(folder)
        assert SPEC.count(self.before) >= 1, self.before
        (folder / "shop.yaml").write_text(SPEC.replace(self.before, self.after, 1) if self.before else SPEC)
        if self.spoil is not None:
            self.spoil(folder)
        return folder / "shop.yaml"


def _rewrite(name: str, change: Callable[[str], str], encoding: str = "utf-8") -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / name
        path.write_text(change(path.read_text()), encoding=encoding)

    return spoil


def _copy(name: str, other: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / other).write_bytes((folder / name).read_bytes())

    return spoil


def _column(name: str, column: int, change: Callable[[int, str], str]) -> Callable[[Path], None]:
    """Changes one column of each row."""

    def spoil(text: str) -> str:
        header, *rows = text.splitlines()
        cells = [row.split(",") for row in rows]
        for number, row in enumerate(cells):
            row[column] = change(number, row[column])
        return "\n".join([header, *map(",".join, cells)]) + "\n"

    return _rewrite(name, spoil)


def _line(text: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if text in line)


def _edit(kind: str, before: str, after: str, says: str, near: str, line: int | None = None) -> Mistake:
    return Mistake(kind, line or _line(before.split("\n", maxsplit=1)[0].strip()), says, near, before, after)


def _data(kind: str, line: int, spoil: Callable[[Path], None], says: str, near: str) -> Mistake:
    return Mistake(kind, line, says, near, spoil=spoil)


MISTAKES = (
    _edit("structure", "rollout:", "rolout:", "unknown field 'rolout'", "'rollout'"),
    _edit("structure", "  users: {uri:", "  user: {uri:", "unknown field 'user'", "'users'"),
    _edit("structure", "    column: stars", "    colum: stars", "unknown field 'colum'", "'column'"),
    _edit("structure", "  family: ease", "  family: ease\n  family: mf", "'family' is given twice", "line 22"),
    _edit("structure", "  item: sku", "  item: sku\n  item_id: sku", "unknown field 'item_id'", "'item'", _line("  item: sku") + 1),
    _edit("names", "family: ease", "family: eas", "unknown model family 'eas'", "'ease'"),
    _edit("names", "{fill: price", "{fil: price", "unknown operator 'fil'", "'fill'"),
    _edit("names", "metric: hr@10", "metric: hit@10", "expected a metric", "hr@10"),
    _edit("names", "not_worse_than: popularity", "not_worse_then: popularity", "unknown field 'not_worse_then'", "'not_worse_than'"),
    _edit("names", "{available: true}", "{availble: true}", "'availble'", "'available'"),
    _edit("values", "test: 20%", "test: 120%", "expected a share between 0% and 100%", "a duration"),
    _edit("values", "since: 3650d", "since: a year", "expected a duration", "7d"),
    _edit("values", 'positive: ">= 4"', 'positive: "=> 4"', "expected a comparison", "'>= 4'"),
    _edit("values", "steps: [10%, 50%]", "steps: [50%, 10%]", "steps", "increas"),
    _edit("values", "by: 20%", "by: twenty", "expected a percentage", "2%"),
    _edit("sources", "uri: events.csv", "uri: event.csv", "event.csv: file not found", "'events.csv'"),
    Mistake("sources", 5, "items.xlsx: not a data file", ".csv", "uri: items.csv", "uri: items.xlsx", _copy("items.csv", "items.xlsx")),
    _data("sources", 4, _rewrite("events.csv", lambda text: ""), "the file is empty", "events.csv"),
    _data("sources", 8, _rewrite("events.csv", lambda text: text.replace(",", " ")), "the only column is 'customer sku", "csv: {separator"),
    _data("sources", 4, _rewrite("events.csv", lambda text: text + "1,2,3,4,5,6\n"), "rows have different lengths", "separator"),
    _edit("columns", "  user: customer", "  user: custmer", "categorify of 'custmer'", "'customer'"),
    _edit("columns", "  item: sku", "  item: skus", "categorify of 'skus'", "'sku'"),
    _edit("columns", "  time: at", "  time: att", "column 'att' is missing", "'at'"),
    _edit("columns", "    column: stars", "    column: star", "column 'star' is missing", "'stars'"),
    _edit("columns", "uri: items.csv, key: sku", "uri: items.csv, key: skuu", "column 'skuu' is missing", "'sku'"),
    _data("rows", 12, _column("events.csv", 3, lambda number, text: "1"), "no positive", "schema.label.positive"),
    _data("rows", 10, _column("events.csv", 2, lambda number, text: f"{1 + number % 28:02}.03.2026"), "not an ISO 8601 time", "format"),
    _data("rows", 8, _column("events.csv", 0, lambda number, text: "" if number % 5 == 0 else text), "nulls", "data.validate"),
    _data("rows", 4, _rewrite("events.csv", lambda text: "\n".join(text.splitlines()[:11]) + "\n"), "too few", "20"),
    _data("rows", 5, _column("items.csv", 0, lambda number, text: str(int(text) + 1_000)), "no item is in the items", "data.items.key"),
    _edit("features", "{categorify: category}", "{categorify: categry}", "'categry'", "'category'"),
    _edit("features", "{fill: price, with: mean}", "{fill: title, with: mean}", "'title'", "number"),
    _edit("features", "{categorify: category}", "{categorify: stars}", "'stars' is the label", "leave it out"),
    _edit("features", "{categorify: category}", "{categorify: sku}", "'sku' is produced twice", "features", 15),
    _edit("features", '{multi_hot: tags, separator: "|"}', "{multi_hot: tags}", "'tags'", "separator"),
    _edit("serving", "category != 'toys'", "categry != 'toys'", "'categry'", "'category'"),
    _edit("serving", "category != 'toys'", "category = 'toys'", "'='", "=="),
    _edit("serving", "category != 'toys'", "price > 'cheap'", "'price'", "number"),
    _edit("serving", "category != 'toys'", "categories contains 'toys'", "'categories'", "'category'"),
    _edit("serving", "{available: true}", "{seen: always}", "unknown filter 'seen'", "'not_seen'"),
)

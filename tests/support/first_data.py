"""Three data sets as new users have them: a shop's events, a listening log, and German order lines. Written by plain Python.

Users of a group prefer the items of their group, so that a model can be better than popularity.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

USERS, ITEMS, GROUPS, ROWS = 300, 200, 5, 6_000
_BEGIN = datetime(2026, 1, 5)


def _pairs(seeded: random.Random) -> Iterator[tuple[int, int, bool]]:
    """Yields user, item, and whether the item is of the user's group; few users and items have most rows."""
    for _ in range(ROWS):
        user = min(int(seeded.expovariate(1 / 60)), USERS - 1)
        own = seeded.random() < 0.8
        item = min(int(seeded.expovariate(1 / 8)), ITEMS // GROUPS - 1) * GROUPS + user % GROUPS if own else seeded.randrange(ITEMS)
        yield user, item, item % GROUPS == user % GROUPS


def write_shop(folder: Path) -> list[Path]:
    """Writes events with e-mail addresses, SKUs and a text label, and a table of products."""
    seeded = random.Random(11)
    events, products = folder / "shop_events.csv", folder / "products.csv"
    with events.open("w") as file:
        file.write("customer_email,sku,event_type,occurred_at,basket_value\n")
        for number, (user, item, own) in enumerate(_pairs(seeded)):
            kind = seeded.choices(("page_view", "add_to_cart", "purchase"), (5, 2, 3 if own else 1))[0]
            at = _BEGIN + timedelta(minutes=17 * number)
            file.write(f'u{user}@mail.example,SKU-{item:04},{kind},{at.isoformat()}Z,"{user + item:,}"\n')
    with products.open("w") as file:
        file.write("sku,title,category,price,colours\n")
        for item in range(ITEMS):
            colours = "|".join(seeded.sample(("red", "green", "blue", "black"), 2))
            file.write(f'SKU-{item:04},"Product {item}, boxed",category {item % GROUPS},{5 + item * 0.37:.2f},{colours}\n')
    return [events, products]


def write_listening(folder: Path) -> list[Path]:
    """Writes counts of plays by listener and artist, as JSON lines without times."""
    seeded = random.Random(12)
    plays: dict[tuple[int, int], int] = {}
    for user, item, own in _pairs(seeded):
        plays[user, item] = plays.get((user, item), 0) + seeded.randint(1, 60 if own else 5)
    path = folder / "listening.jsonl"
    with path.open("w") as file:
        for (user, item), count in plays.items():
            tags = [f"genre {item % GROUPS}", *seeded.sample(("live", "remix", "cover"), 1)]
            file.write(json.dumps({"listener_id": user + 1, "artist": f"Artist № {item}", "play_count": count, "tags": tags}) + "\n")
    return [path]


def write_orders(folder: Path) -> list[Path]:
    """Writes German order lines: Latin-1, semicolons, decimal commas, and dates with the day first."""
    seeded = random.Random(13)
    path = folder / "bestellungen.csv"
    lines = ["Kundennummer;Artikelnummer;Größe;Preis;Bewertung;Datum"]
    for number, (user, item, own) in enumerate(_pairs(seeded)):
        rating = min(10, seeded.randint(5, 10) if own else seeded.randint(2, 8)) / 2
        at = _BEGIN + timedelta(minutes=31 * number)
        size = seeded.choice(("groß", "klein", "übergroß"))
        price, stars = (f"{value:.2f}".replace(".", ",") for value in (5 + item * 0.37, rating))
        lines.append(f"{1000 + user};{500 + item};{size};{price};{stars};{at:%d.%m.%Y}")
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("latin-1"))
    return [path]

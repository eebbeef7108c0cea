"""A served unit in the gateway's memory: catalogue columns, popular items and known users.

Each version is loaded once. Every call uses the same array objects as item columns, so the model server's client can cache them.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from services.gateway.sorted_keys import Mask, find
from services.gateway.vectors import VersionVectors, build_vectors, read_vectors
from shared.contracts.items_table import NEW_ITEMS, NewItems
from shared.contracts.online import ONLINE, Online, OnlineView
from shared.contracts.strict import read
from shared.domain.entity_ids import Id
from shared.domain.errors import BadData, Damaged, Invalid, NotFound, Unavailable
from shared.domain.feature_values import StoredRow
from shared.ports import ArtifactStore, CandidateIndex, Indexes, Version
from shared.serving.nearest import Keys, Rows
from shared.serving.signature import FRESH, INDEX, ITEM_IDS, Input, Signature
from shared.serving.text_column import TextColumn, read_texts
from shared.serving.values_file import ValueRows, join_values, read_values
from shared.telemetry import metrics

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
OWN_BYTES = 64 << 20
"""Maximum bytes of a version's own feature values in memory; they replace a feature store that does not answer."""


@dataclass(frozen=True, eq=False)
class LoadedVersion:
    version: int
    user_input: str
    item_input: str
    columns: Mapping[str, Array]
    """One array per item input, aligned by row."""
    items: Keys
    """Item key of each row."""
    popular: Keys
    fresh: Keys
    """New items, newest first."""
    users: Keys
    vectors: VersionVectors | None
    """None: the version does not retrieve."""
    _by_key: Rows
    """Rows sorted by item key."""
    _sorted: Keys
    others: tuple[Input, ...] = ()
    """Request inputs other than the user key."""
    moment: str | None = None
    """Name of the input that takes the time of the request."""
    session: str | None = None
    """Name of the input that takes the user's newest items."""
    learned_until: datetime | None = None
    """Time of the newest training row of the version; None if the version does not say it."""
    views: tuple[OnlineView, ...] = ()
    """Views of the feature store that the version reads."""
    own: Mapping[str, ValueRows] = field(default_factory=dict)
    """Values by view that the version was published with, if they fit into OWN_BYTES."""
    item_ids: TextColumn | None = None
    """Id of each row's item, if ids are text."""
    new_items: NewItems | None = None
    """How the version reads new items; versions of older releases do not say it."""
    new_count: int = 0
    """Number of new items; their rows follow the version's own rows."""
    new_ids: Sequence[str] = ()
    """Ids of the new items, if ids are text."""

    @property
    def own_rows(self) -> int:
        return len(self.items) - self.new_count

    @property
    def new_rows(self) -> Rows:
        """Rows of the new items, newest first."""
        return np.arange(self.own_rows, len(self.items))

    def with_new_items(self, columns: Mapping[str, Array], ids: Sequence[str]) -> LoadedVersion:
        """Returns the version with rows for new items, newest first; `columns` has their value for each item input."""
        joined = {name: np.concatenate([column, columns[name]]) for name, column in self.columns.items()}
        for column in joined.values():
            column.flags.writeable = False
        new = columns[self.item_input]
        order = np.argsort(new)
        places = np.searchsorted(self._sorted, new[order])
        return replace(
            self,
            columns=joined,
            items=joined[self.item_input],
            fresh=np.concatenate([new, self.fresh]),
            _by_key=np.insert(self._by_key, places, len(self.items) + order),
            _sorted=np.insert(self._sorted, places, new[order]),
            new_count=len(new),
            new_ids=ids,
        )

    def knows(self, user: int) -> bool:
        place = int(np.searchsorted(self.users, user))
        return place < len(self.users) and int(self.users[place]) == user

    def ids(self, keys: Sequence[int]) -> Sequence[Id]:
        """Returns the ids of items of the version."""
        return keys if self.item_ids is None else [self._id(self.item_ids, row) for row in self.rows(keys).tolist()]

    def _id(self, own: TextColumn, row: int) -> str:
        return own[row] if row < self.own_rows else self.new_ids[row - self.own_rows]

    def check_id(self, key: int, id: str) -> None:
        """Raises Invalid if the version's item of this key has another id."""
        place = int(np.searchsorted(self._sorted, key))
        if self.item_ids is None or place == len(self._sorted) or int(self._sorted[place]) != key:
            return
        other = self._id(self.item_ids, int(self._by_key[place]))
        if other != id:
            raise Invalid(f"item: '{id}' and the item '{other}' of version {self.version} have the same key; rename one of them")

    @property
    def reads_likes(self) -> bool:
        """Whether a request gives the version likes since its training; versions of older releases do not say until when they learned."""
        return self.session is not None and self.learned_until is not None

    def reads(self, items: Sequence[int]) -> bool:
        """Whether the version reads a user's newest items and knows any of these items."""
        return self.session is not None and bool((self.rows(items) < self.own_rows).any())

    def scores(self, user: int, items: Sequence[int]) -> bool:
        """Whether the version can score the user: known, or with newest items that the version reads."""
        return self.knows(user) or self.reads(items)

    def own_row(self, view: OnlineView, user: int) -> StoredRow | None:
        """Returns the user's values that the version was published with; None if unknown or not in memory."""
        values = self.own.get(view.name)
        if values is None:
            return None
        place = int(np.searchsorted(values.keys, user))
        there = place < len(values.keys) and int(values.keys[place]) == user
        return values.row(place, view.columns) if there else None

    @cached_property
    def every(self) -> Rows:
        return np.arange(len(self.items))

    @cached_property
    def popular_rows(self) -> Rows:
        """Most popular first."""
        return self.rows(self.popular.tolist())

    @cached_property
    def fresh_rows(self) -> Rows:
        return self.rows(self.fresh.tolist())

    def has(self, keys: Keys) -> Mask:
        """Returns for each key whether the version has this item."""
        return find(self._sorted, keys)[1]

    def rows(self, keys: Iterable[int]) -> Rows:
        """Returns the rows of these items, in their order, without unknown items."""
        wanted = np.fromiter(keys, dtype=np.int64)
        places, there = find(self._sorted, wanted)
        rows: Rows = self._by_key[places[there]]
        return rows

    def retrieve(self, user: int, n: int) -> Rows | None:
        """Returns the rows with the best dot products, best first; None without vectors for the version or the user."""
        return None if self.vectors is None else self.vectors.retrieve(user, n)

    def retrieve_many(self, users: Sequence[int], n: int) -> list[Rows | None]:
        """Like `retrieve`, for several users at once."""
        return [None] * len(users) if self.vectors is None else self.vectors.retrieve_many(users, n)

    def similar(self, item: int, n: int) -> Rows | None:
        """Returns the rows of the most similar items; None without vectors, or for an unknown item."""
        row = self.rows([item])
        return None if self.vectors is None or not len(row) else self.vectors.similar(int(row[0]), n)

    def feed_of(self, request_columns: Mapping[str, Array], rows: Sequence[Rows]) -> Mapping[str, Array]:
        """Returns the inputs for some rows of each request, concatenated; `request_columns` has one value per request."""
        together, lengths = np.concatenate(rows), [len(request_rows) for request_rows in rows]
        repeated = {name: np.repeat(values, lengths, axis=0) for name, values in request_columns.items()}
        return {**repeated, **{name: column[together] for name, column in self.columns.items()}}

    def feed(self, request_columns: Mapping[str, Array]) -> Mapping[str, Array]:
        """Returns the inputs for one request over the whole catalogue."""
        rows = len(self.items)
        return {**{name: np.broadcast_to(values, (rows, *values.shape[1:])) for name, values in request_columns.items()}, **self.columns}


def load_unit(version: Version, artifacts: ArtifactStore, indexes: Indexes) -> LoadedVersion:
    """Loads a version for the gateway; raises Unavailable if its files cannot be served."""
    label = f"version {version.number} of {version.recommender}"
    signature = read(Signature, json.loads(_file(version, artifacts, label, "signature.json")), f"signature.json of {label}")
    _check_inputs(signature, label)
    with np.load(io.BytesIO(_file(version, artifacts, label, "catalogue.npz")), allow_pickle=False) as catalogue:
        absent = [model_input.name for model_input in signature.side("item") if model_input.name not in catalogue.files]
        if absent:
            raise Unavailable(f"{label}: catalogue.npz lacks the input '{absent[0]}'")
        columns = {model_input.name: np.ascontiguousarray(catalogue[model_input.name]) for model_input in signature.side("item")}
    items = _keys(columns[signature.item], f"{label}: catalogue.npz, '{signature.item}'")
    uneven = [name for name, column in columns.items() if len(column) != len(items)]
    if uneven or not len(items):
        raise Unavailable(f"{label}: catalogue.npz is empty, or its column '{(uneven or [signature.item])[0]}' has a different length")
    for column in columns.values():
        column.flags.writeable = False  # constant, so that packed columns can be cached
    order = np.argsort(items, kind="stable")
    views = _views(version, artifacts, label, signature)
    return LoadedVersion(
        version=version.number,
        user_input=signature.user,
        item_input=signature.item,
        columns=columns,
        items=items,
        popular=_array(version, artifacts, label, "popular.npy"),
        fresh=_array(version, artifacts, label, FRESH) if FRESH in version.files else np.empty(0, np.int64),
        users=np.sort(_array(version, artifacts, label, "users.npy")),
        vectors=_vectors(version, artifacts, label, items, indexes),
        _by_key=order,
        _sorted=items[order],
        others=tuple(model_input for model_input in signature.request_inputs() if model_input.name != signature.user),
        moment=signature.time,
        session=signature.session,
        learned_until=None if signature.learned_until is None else datetime.fromtimestamp(signature.learned_until, UTC),
        views=views,
        own=_own(version, artifacts, label, views),
        item_ids=_item_ids(version, artifacts, label, len(items)),
        new_items=_new_items(version, artifacts, label),
    )


def _new_items(version: Version, artifacts: ArtifactStore, label: str) -> NewItems | None:
    if NEW_ITEMS not in version.files:
        return None
    return read(NewItems, json.loads(_file(version, artifacts, label, NEW_ITEMS)), f"{NEW_ITEMS} of {label}")


def _item_ids(version: Version, artifacts: ArtifactStore, label: str, rows: int) -> TextColumn | None:
    if ITEM_IDS not in version.files:
        return None
    item_ids = read_texts(_file(version, artifacts, label, ITEM_IDS), f"{label}: {ITEM_IDS}")
    if len(item_ids) != rows:
        raise Unavailable(f"{label}: {ITEM_IDS} and catalogue.npz have different numbers of items")
    return item_ids


def _views(version: Version, artifacts: ArtifactStore, label: str, signature: Signature) -> tuple[OnlineView, ...]:
    """Checks that each input from the feature store is a column of its view with the same type."""
    inputs = [model_input for model_input in signature.inputs if model_input.origin == "store"]
    if not inputs:
        return ()
    online = read(Online, json.loads(_file(version, artifacts, label, ONLINE)), f"{ONLINE} of {label}")
    for model_input in inputs:
        view = online.view(str(model_input.view))
        columns = {column.name: (column.dtype, column.width) for column in view.columns} if view else {}
        if columns.get(model_input.name) != (model_input.dtype, model_input.width):
            raise Unavailable(f"{label}: {ONLINE} has no column '{model_input.name}' of the expected type in the view '{model_input.view}'")
    wanted = {model_input.view for model_input in inputs}
    return tuple(view for view in online.views if view.name in wanted)


def _own(version: Version, artifacts: ArtifactStore, label: str, views: Sequence[OnlineView]) -> Mapping[str, ValueRows]:
    """Reads all rows of a view, or none."""
    own_values: dict[str, ValueRows] = {}
    room = OWN_BYTES
    for view in views:
        parts: list[ValueRows] = []
        for name in view.parts:
            parts.append(read_values(_file(version, artifacts, label, name), view, f"{label}: {name}"))
            room -= parts[-1].nbytes
            if room < 0:
                ids = (version.recommender, version.number, view.name)
                log.info("view: too large, only the feature store has it recommender=%s version=%d view=%s rows=%d", *ids, view.rows)
                return own_values
        if parts:
            own_values[view.name] = join_values(parts)
    return own_values


def _vectors(version: Version, artifacts: ArtifactStore, label: str, items: Keys, indexes: Indexes) -> VersionVectors | None:
    if not {"embeddings.npz", "queries.npz"} <= version.files.keys():
        return None
    keys, vectors = read_vectors(_file(version, artifacts, label, "embeddings.npz"), f"{label}: embeddings.npz", "items")
    users, queries = read_vectors(_file(version, artifacts, label, "queries.npz"), f"{label}: queries.npz", "users")
    if not np.array_equal(keys, items):
        raise Unavailable(f"{label}: embeddings.npz and catalogue.npz have different items, or a different order")
    if queries.shape[1] != vectors.shape[1] or (np.diff(users) <= 0).any():
        raise Unavailable(f"{label}: queries.npz does not fit embeddings.npz: users must be sorted, and vectors must have the same width")
    return build_vectors(items, vectors, users, queries, _index(version, artifacts, label, items, vectors, indexes))


def _index(version: Version, artifacts: ArtifactStore, label: str, items: Keys, vectors: Array, indexes: Indexes) -> CandidateIndex:
    """Opens the version's index. Falls back to exact search over the vectors if the index is unusable: slower, equal results."""
    if INDEX in version.files:
        try:
            return indexes.open(items, vectors, artifacts.read(version.files[INDEX]))
        except (Damaged, NotFound, BadData) as error:
            ids = (version.recommender, version.number)
            log.error("index: unusable, slower exact search is used recommender=%s version=%d error=%s", *ids, error)
            metrics.UNUSABLE.labels(version.recommender).inc()
    return indexes.open(items, vectors, None)


def _check_inputs(signature: Signature, label: str) -> None:
    """Checks that keys are int64, one per row."""
    for model_input in signature.inputs:
        if model_input.name in (signature.user, signature.item) and (model_input.dtype != "int64" or model_input.width is not None):
            raise Unavailable(f"{label}: the key '{model_input.name}' must be one int64 per row")


def _file(version: Version, artifacts: ArtifactStore, label: str, name: str) -> bytes:
    if name not in version.files:
        raise Unavailable(f"{label} has no {name}: it was not exported for serving")
    return artifacts.read(version.files[name])


def _array(version: Version, artifacts: ArtifactStore, label: str, name: str) -> Keys:
    loaded = np.load(io.BytesIO(_file(version, artifacts, label, name)), allow_pickle=False)
    return _keys(loaded, f"{label}: {name}")


def _keys(array: Array, place: str) -> Keys:
    if array.ndim != 1 or array.dtype != np.int64:
        raise Unavailable(f"{place}: expected one int64 per row, got {array.dtype} of shape {array.shape}")
    return array

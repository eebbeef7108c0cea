"""The families of models: a class of parameters each, which says in words what the family is.

A new family is one more class here, among `Params` and in `FAMILIES`. A family of somebody's own has none: its parameters are a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, JsonValue, RootModel, model_validator

from shared.contracts.ranges import Range, between, one_of
from shared.contracts.strict import Strict


class FamilyParams(Strict):
    meaning: ClassVar[str]
    """What the family is, for the reference."""
    no_steps: ClassVar[str | None] = None
    """Why `train` has nothing to say to it but what it heeds, where that is so."""
    keeps_rows: ClassVar[bool] = True
    """Whether a warm run keeps its parent's vectors by code and begins others beside them."""
    replays: ClassVar[bool] = True
    """Whether a warm run learns from the rows that it is given alone, so that older ones among them keep it from forgetting."""
    ranges: ClassVar[Mapping[str, Range]] = {}
    """What `eyas tune` searches where nobody says it; numbers and choices that pay, by name in the spec's `model`."""

    @classmethod
    def usual(cls, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """What `train` is with these parameters, as they were said, where it says nothing itself and the defaults of all don't fit."""
        return {}

    @property
    def heeds(self) -> frozenset[str]:
        """What of `train` counts for a family that takes no steps."""
        return frozenset({"seed"})

    def wants_both_labels(self, full: bool) -> bool:
        """Whether rows of one label are a mistake. Feedback is mostly positive by nature."""
        return False


class DeepParams(FamilyParams):
    """What families have in common that take every feature: embeddings and hidden ReLU layers."""

    ranges: ClassVar[Mapping[str, Range]] = {
        "params.width": between(8, 128, log=True),
        "params.layers": one_of([64], [128, 64], [128, 128, 128], [256, 128, 64]),
        "params.negatives": between(1, 10),
        "train.epochs": between(2, 15),
        "train.learning_rate": between(3e-4, 1e-2, log=True),
    }

    layers: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (128, 128, 128), min_length=1, max_length=8, description="Widths of the hidden layers."
    )
    width: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="One embedding width for all columns; when absent by rule of the cardinality, padded to a multiple of 16 (64 bytes).",
    )
    pooling: Literal["mean", "sum"] = Field("mean", description="What becomes of the vectors of a column of several codes a row.")
    dropout: float = Field(0, ge=0, lt=1, description="After each hidden layer: the share of its numbers left out, in training alone.")
    batch_norm: bool = Field(False, description="Whether each hidden layer's output is normalised over the batch.")
    layer_norm: bool = Field(
        True,
        description="Whether each vector of `vector` (of a picture, a text) is brought to mean 0 and variance 1 row by row, and scaled by "
        "weights of its own, before it stands beside the rest.",
    )
    negatives: int = Field(4, ge=0, le=100, description="Sampled negatives for each positive, drawn anew each epoch.")
    verified: bool = Field(
        False,
        description="Whether no sampled negative is an item that its user liked in the rows to train on, or, of a warm run, before. It "
        "takes two bytes a like; of what wasn't liked, half a per cent is never drawn either.",
    )

    @model_validator(mode="after")
    def _verifies_something(self) -> DeepParams:
        if self.verified and not self.negatives:
            raise ValueError("params: 'verified' has no effect: no negatives are sampled: leave it out")
        return self

    def wants_both_labels(self, full: bool) -> bool:
        """Sampled negatives stand against positives; without them a file of one label is a mistake."""
        return full or self.negatives == 0


class MlpParams(DeepParams):
    """The notebook's model: embeddings, hidden ReLU layers, a sigmoid."""

    meaning = "embeddings, hidden layers, sigmoid."


class DlrmParams(DeepParams):
    """Inner products of all embeddings and of what layers make of the numbers, then hidden layers."""

    meaning = (
        "inner products of every two embeddings, and of each with what layers make of the numbers, before the hidden layers (DLRM): for "
        "many columns of codes that say something together."
    )
    ranges: ClassVar[Mapping[str, Range]] = {**DeepParams.ranges, "params.width": between(8, 64, log=True)}

    layers: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (128, 64), min_length=1, max_length=8, description="Widths of the hidden layers behind the inner products."
    )
    width: int = Field(16, ge=1, le=1024, description="Of every embedding, and of what becomes of the numbers.")
    bottom: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (64, 32),
        max_length=8,
        description="Widths of the hidden layers of the numbers alone, before one that is as wide as the embeddings.",
    )
    itself: bool = Field(False, description="Whether each vector is multiplied with itself too.")


class WideDeepParams(DeepParams):
    """A weight for each value and number beside an mlp."""

    meaning = (
        "a weight for each value, each bucket of a cross and each number, added up, beside embeddings and hidden layers (Wide & Deep): "
        "what is frequent is remembered as it is."
    )

    width: int | None = Field(
        None,
        ge=1,
        le=1023,
        description="Numbers of an embedding that go into the hidden layers, of all columns; a table has one more, its values' weights. "
        "When absent by rule of the cardinality: one less than a multiple of 16 (64 bytes with the weight). Crosses have weights alone.",
    )
    pooling: Literal["mean", "sum"] = Field(
        "sum", description="What becomes of the weights, and of the vectors, of a column of several codes a row."
    )


class PopularityParams(FamilyParams):
    """Nothing can be chosen: a count has no parameters."""

    meaning = "an item's share of positives, the same for every user: a safe first version."
    no_steps = "popularity counts and isn't trained"
    keeps_rows = replays = False


class MfParams(FamilyParams):
    """Matrix factorisation: an inner product of two vectors, solved for by least squares, or found by gradient."""

    meaning = (
        "matrix factorisation, by alternating least squares or by gradient (`params.loss`): quick, the same for an equal seed, and its "
        "vectors retrieve."
    )
    no_steps = "mf has passes of its own (params.sweeps, params.epochs)"
    replays = False
    OF_LOSS: ClassVar[Mapping[str, frozenset[str]]] = {
        "als": frozenset({"unobserved", "sweeps"}),
        "contrast": frozenset({"against", "blend", "damping", "epochs", "learning_rate"}),
    }
    ranges: ClassVar[Mapping[str, Range]] = {
        "params.loss": one_of("als", "softmax"),
        "params.width": between(16, 256, log=True),
        "params.regularisation": between(1e-3, 0.3, log=True),
        "params.unobserved": between(0.02, 2, log=True),
        "params.learning_rate": between(3e-3, 3e-2, log=True),
        "params.against": between(10, 1000, log=True),
        "params.blend": one_of(False, True),
    }

    width: int = Field(64, ge=1, le=1024, description="Numbers in a vector.")
    loss: Literal["als", "softmax", "logistic"] = Field(
        "als",
        description="What a like is held against. `als`: everything else, by weighted least squares. `softmax`: it is to be chosen among "
        "what its user didn't like. `logistic`: it is told from that, each for itself. The last two take longer and rank better.",
    )
    regularisation: float | None = Field(
        None,
        gt=0,
        le=10,
        description="How small vectors are kept. When absent: of `als` the strength that ranks the newest likes best, else 0.04.",
    )
    unobserved: float = Field(
        0.4, gt=0, le=10, description="Of `als`: what a pair that wasn't liked weighs against, beside a liked one's 1."
    )
    sweeps: int = Field(10, ge=1, le=200, description="Of `als`: how often both sides are solved; a warm run does a third.")
    against: float | None = Field(
        None,
        gt=0,
        le=1_000_000,
        description="How many of what its user didn't like stand against a like; when absent 100 of `softmax` and 8 of `logistic`.",
    )
    blend: bool = Field(
        True, description="Of `softmax` and `logistic`: whether a user's vector is also made of vectors of what the user liked."
    )
    damping: float = Field(
        0.5,
        ge=0,
        le=2,
        description="Of `softmax` and `logistic`: how much less of each like a user says who likes a lot: n likes weigh n^-damping.",
    )
    epochs: int = Field(20, ge=1, le=1000, description="Of `softmax` and `logistic`: passes over the likes; a warm run does a third.")
    learning_rate: float = Field(0.02, gt=0, le=1, description="Of `softmax` and `logistic`: Adam's at its highest.")

    @model_validator(mode="after")
    def _says_what_counts(self) -> MfParams:
        others = self.OF_LOSS["contrast" if self.loss == "als" else "als"]
        idle = [name for name in others if getattr(self, name) != type(self).model_fields[name].default]
        if idle:
            raise ValueError(f"params: '{min(idle)}' has no effect with loss '{self.loss}': leave it out")
        return self


class NeumfParams(FamilyParams):
    """Neural collaborative filtering: a weighted inner product beside hidden layers."""

    meaning = "neural collaborative filtering (NeuMF): a weighted inner product of two vectors beside hidden layers, of keys alone."
    ranges: ClassVar[Mapping[str, Range]] = {
        "params.width": between(16, 128, log=True),
        "params.factorisation": between(0.01, 0.2, log=True),
        "params.dropout": between(0.0, 0.5),
        "params.negatives": between(2, 8),
        "train.epochs": between(1, 6),
        "train.learning_rate": between(1e-4, 3e-3, log=True),
    }

    width: int = Field(64, ge=2, le=1024, description="Numbers of a vector that are multiplied with the other side's.")
    layers: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        (64, 32, 16),
        min_length=1,
        max_length=8,
        description="Widths of the hidden layers. Numbers of a vector that go through them are as many as the first is wide.",
    )
    dropout: float = Field(0, ge=0, lt=1, description="Share of what goes into a hidden layer that is left out, in training alone.")
    regularisation: float = Field(0, ge=0, le=10, description="How small vectors are kept: their squares count so much in each row's loss.")
    negatives: int = Field(4, ge=1, le=100, description="Sampled negatives for each positive, drawn anew each epoch.")
    verified: bool = Field(
        False,
        description="Whether no sampled negative is an item that its user liked in the rows to train on, or, of a warm run, before. It "
        "takes two bytes a like; of what wasn't liked, half a per cent is never drawn either.",
    )
    pretrain: bool = Field(
        True,
        description="Whether the inner product begins as a factorisation by softmax; a warm run begins from its parent. Then "
        "`train` is an epoch at a learning rate of 0.0002 unless it says otherwise, else 20 at 0.001.",
    )
    factorisation: float = Field(0.05, gt=0, le=10, description="How small that factorisation keeps its vectors, as `mf` means it.")

    @classmethod
    def usual(cls, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """From a factorisation one careful pass goes on; from nothing it takes many."""
        if said.get("pretrain", True):
            return {"epochs": 1, "learning_rate": 0.0002}
        return {"epochs": 20, "learning_rate": 0.001}

    @model_validator(mode="after")
    def _factorises_something(self) -> NeumfParams:
        if not self.pretrain and self.factorisation != 0.05:
            raise ValueError("params: 'factorisation' has no effect without pretrain: leave it out")
        return self


class TwoTowerParams(FamilyParams):
    """A tower of layers for the user and one for the item; they meet in an inner product."""

    meaning = (
        "retrieval by two towers: layers over the user's features and over the item's give a vector each, whose inner product is the "
        "score; each like is chosen among a batch's items, by their popularity corrected."
    )
    ranges: ClassVar[Mapping[str, Range]] = {
        "params.width": between(16, 128, log=True),
        "params.layers": one_of([64], [128], [128, 64], [256, 128]),
        "params.temperature": between(0.03, 0.5, log=True),
        "params.dropout": between(0.0, 0.5),
        "train.epochs": between(5, 60),
        "train.learning_rate": between(3e-4, 1e-2, log=True),
    }

    width: int = Field(64, ge=1, le=1024, description="Numbers in a vector that a tower gives.")
    layers: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (128,), max_length=8, description="Widths of the hidden layers of each tower; none: a tower is one linear layer."
    )
    embedding: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="One embedding width for all columns; when absent by rule of the cardinality, padded to a multiple of 16 (64 bytes).",
    )
    pooling: Literal["mean", "sum"] = Field("mean", description="What becomes of the vectors of a column of several codes a row.")
    dropout: float = Field(0, ge=0, lt=1, description="After each hidden layer: the share of its numbers left out, in training alone.")
    layer_norm: bool = Field(
        True,
        description="Whether each vector of `vector` (of a picture, a text) is brought to mean 0 and variance 1 row by row, and scaled by "
        "weights of its own, before it stands beside the rest.",
    )
    normalise: bool = Field(
        True, description="Whether vectors are of one length: then the score is their cosine, divided by the temperature."
    )
    temperature: float = Field(
        0.1, gt=0, le=10, description="Of normalised vectors: the smaller, the more the nearest items of a batch count."
    )
    regularisation: float = Field(
        0, ge=0, le=10, description="How small embeddings are kept: their squares count so much in each row's loss."
    )

    @classmethod
    def usual(cls, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """A step of positives alone sees few rows, so it takes more passes."""
        return {"epochs": 20, "learning_rate": 0.002}

    @model_validator(mode="after")
    def _divides_something(self) -> TwoTowerParams:
        if not self.normalise and self.temperature != 0.1:
            raise ValueError("params: 'temperature' has no effect without normalise: leave it out")
        return self


class SessionParams(FamilyParams):
    """A transformer over what a user met, one item after the other."""

    meaning = "a transformer over the items that a user liked, in the order of their times: says what comes next."
    ranges: ClassVar[Mapping[str, Range]] = {
        "params.width": one_of(32, 64, 96, 128),
        "params.blocks": between(1, 3),
        "params.length": one_of(20, 50, 100, 200),
        "params.dropout": between(0.0, 0.6),
        "params.objective": one_of("next", "masked"),
        "train.epochs": between(20, 200),
        "train.learning_rate": between(3e-4, 3e-3, log=True),
    }

    width: int = Field(64, ge=2, le=1024, description="Numbers of an item's vector, and of each layer's.")
    blocks: int = Field(2, ge=1, le=16, description="How many blocks of attention and a hidden layer follow each other.")
    heads: int = Field(2, ge=1, le=64, description="Parts of the vectors that attend each for itself; they divide the width.")
    length: int = Field(50, ge=1, le=1000, description="How many of a user's newest items count.")
    dropout: float = Field(0.2, ge=0, lt=1, description="Share of what goes into and out of a block that is left out, in training alone.")
    objective: Literal["next", "masked"] = Field(
        "next",
        description="What is learned. `next`: at each place, from what came before, the item that follows. `masked`: items that were "
        "hidden, from those on both sides.",
    )
    mask: float = Field(
        0.3,
        gt=0,
        lt=1,
        description="Of `masked`: the share of items that are hidden, drawn anew each epoch; of as many windows the last item alone.",
    )
    reversed: bool = Field(
        False, description="Whether each sequence is learned backwards as well, behind a mark of its own: twice the windows an epoch."
    )
    against: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="How many items, drawn for each step, an item is to be chosen among. When absent the whole catalogue, up to 16,384.",
    )

    @classmethod
    def usual(cls, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """A step takes few sequences, each of many items."""
        return {"epochs": 40, "learning_rate": 0.001}

    @model_validator(mode="after")
    def _fits_together(self) -> SessionParams:
        if self.width % self.heads:
            raise ValueError(f"params: {self.heads} heads don't divide a width of {self.width}: choose a multiple")
        if self.objective == "next" and self.mask != 0.3:
            raise ValueError("params: 'mask' has no effect with objective 'next': leave it out")
        return self


class EaseParams(FamilyParams):
    """A weight for each pair of items, in closed form."""

    meaning = (
        "a weight for each pair of items, solved at once: strong where there are thousands of items; time grows with the cube of their "
        "number, memory with the square."
    )
    no_steps = "ease is solved at once and takes no steps"
    keeps_rows = replays = False
    ranges: ClassVar[Mapping[str, Range]] = {"params.regularisation": between(10, 10_000, log=True)}

    regularisation: float | None = Field(
        None, gt=0, le=1e9, description="How small weights are kept, in likes; when absent, the strength that ranks held-out likes best."
    )


class ItemKnnParams(FamilyParams):
    """Items that the same users like."""

    meaning = "the nearest neighbours of what a user likes: quick, for catalogues of any size."
    no_steps = "itemknn counts who likes what together and takes no steps"
    keeps_rows = replays = False
    ranges: ClassVar[Mapping[str, Range]] = {
        "params.neighbours": between(20, 1000, log=True),
        "params.shrink": between(0.1, 1000, log=True),
        "params.damping": between(0, 1.0),
        "params.pull": between(0, 1.0),
    }

    neighbours: int = Field(100, ge=1, le=10_000, description="How many of an item's nearest count.")
    shrink: float = Field(0.0, ge=0, le=1e6, description="Added below the fraction: keeps chance out of what few users say.")
    damping: float = Field(1.0, ge=0, le=2, description="How much less of each pair a user says who likes a lot: n likes weigh n^-damping.")
    pull: float = Field(
        0.4, ge=0, le=1, description="How popularity is divided by: 0.5 gives the cosine, less lets popular items score higher."
    )


class GbmParams(FamilyParams):
    """Trees that are grown after each other, or beside each other."""

    meaning = (
        "gradient-boosted trees (XGBoost, LightGBM) or a forest (scikit-learn) over all features as numbers, over counts of likes, and "
        "over how well a factorisation of the same likes thinks that user and item go together."
    )
    no_steps = "gbm grows trees (params.trees) and takes no steps"
    keeps_rows = False
    BOOSTED: ClassVar[tuple[str, ...]] = ("learning_rate", "regularisation", "objective")
    ranges: ClassVar[Mapping[str, Range]] = {
        "params.trees": between(50, 600, log=True),
        "params.depth": between(3, 9),
        "params.learning_rate": between(0.02, 0.3, log=True),
        "params.regularisation": between(0.1, 100, log=True),
        "params.negatives": between(2, 20),
    }

    library: Literal["xgboost", "lightgbm", "forest"] = Field(
        "xgboost", description="What grows them. `forest`: scikit-learn's, whose trees stand beside each other."
    )
    objective: Literal["logistic", "rank"] = Field(
        "logistic",
        description="`logistic`: likes are told from what isn't liked, each row for itself. `rank`: of two rows of one user the liked one "
        "is to stand higher (XGBoost's pairwise loss, LightGBM's LambdaRank).",
    )
    trees: int = Field(100, ge=1, le=10_000, description="How many; a warm run grows as many more. With `train.validation` at most.")
    depth: int | None = Field(None, ge=1, le=16, description="Of a tree at most; when absent 6, and 12 in a forest.")
    leaves: int | None = Field(None, ge=2, le=65_536, description="Of a tree at most: those are split first where most is won.")
    splits: Literal["best", "random"] = Field(
        "best", description="Of a forest: where a node is split. `best`: a random forest; `random`: extremely randomised trees."
    )
    learning_rate: float = Field(0.1, gt=0, le=1, description="What a tree counts of what it would correct.")
    subsample: float = Field(0.8, gt=0, le=1, description="Share of the rows that a tree sees.")
    columns: float | None = Field(
        None, gt=0, le=1, description="Share of the columns that a tree sees, in a forest each node; when absent all, and 0.4 in a forest."
    )
    regularisation: float = Field(1.0, ge=0, le=1e6, description="How small what leaves say is kept (L2).")
    least: float = Field(
        1.0, ge=0, le=1e9, description="Of a leaf at least: rows of a forest, else the sum of their second derivatives (at most 1/4 a row)."
    )
    negatives: int = Field(8, ge=0, le=100, description="Negatives for each positive.")
    among: Literal["all", "popular", "retrieved", "mixed"] = Field(
        "all",
        description="What negatives are drawn from: `all` items evenly; `popular` ones as often as they are liked; what the factorisation "
        "would have `retrieved` for the user, that isn't liked: for trees that are asked of retrieved candidates alone; `mixed`: half of "
        "them retrieved, half of all.",
    )
    candidates: int = Field(200, ge=2, le=10_000, description="How many items are retrieved for a user, to draw negatives from.")
    verified: bool = Field(
        True,
        description="Whether no negative that is drawn of all or of popular items is one that its user liked in the rows to train on, or, "
        "of a warm run, before. What is retrieved never is.",
    )
    width: int = Field(
        64, ge=0, le=1024, description="Of the factorisation whose fit of user and item is a column; 0: there is none, and no such column."
    )
    folds: int = Field(
        4, ge=2, le=20, description="Into how many parts likes are dealt: a row to train on is described by the likes of the other parts."
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where XGBoost grows trees; `cuda` takes a build of it that knows GPUs.")

    @property
    def heeds(self) -> frozenset[str]:
        """XGBoost's draws can be taken up again after a kill."""
        return frozenset({"seed", "validation", "early_stop"} | ({"checkpoint"} if self.library == "xgboost" else set()))

    @model_validator(mode="after")
    def _says_what_counts(self) -> GbmParams:
        idle: list[tuple[str, str]] = []
        if self.library == "forest":
            idle += [(name, "in a forest") for name in self.BOOSTED]
        else:
            idle += [("splits", f"with {self.library}")]
        if self.library != "xgboost":
            idle += [("device", f"with {self.library}")]
        if not self.negatives:
            idle += [(name, "where no negatives are drawn") for name in ("among", "candidates", "verified")]
        if self.among not in ("retrieved", "mixed"):
            idle += [("candidates", f"where negatives are drawn from {self.among}")]
        if self.among == "retrieved":
            idle += [("verified", "where negatives are retrieved")]
        for name, where in idle:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"params: '{name}' has no effect {where}: leave it out")
        if self.negatives and not self.width and self.among in ("retrieved", "mixed"):
            raise ValueError(
                f"params: negatives 'among: {self.among}' are what a factorisation finds: give it a width, or choose among: all"
            )
        return self

    def wants_both_labels(self, full: bool) -> bool:
        """Negatives that are drawn stand against positives; without them a file of one label is a mistake."""
        return full or self.negatives == 0


class OwnParams(RootModel[dict[str, JsonValue]]):
    """Of a family of one's own, `module:Class`: whatever it takes; it looks at them itself, before any data is read."""

    model_config = ConfigDict(frozen=True)

    no_steps: ClassVar[str | None] = None
    heeds: ClassVar[frozenset[str]] = frozenset()
    keeps_rows: ClassVar[bool] = True
    replays: ClassVar[bool] = True

    def wants_both_labels(self, full: bool) -> bool:
        """What it learns from is its own business."""
        return False


Params = (
    MlpParams
    | DlrmParams
    | WideDeepParams
    | PopularityParams
    | MfParams
    | NeumfParams
    | TwoTowerParams
    | SessionParams
    | EaseParams
    | ItemKnnParams
    | GbmParams
    | OwnParams
)

FAMILIES: Mapping[str, type[FamilyParams]] = {
    "mlp": MlpParams,
    "dlrm": DlrmParams,
    "wide_deep": WideDeepParams,
    "popularity": PopularityParams,
    "mf": MfParams,
    "neumf": NeumfParams,
    "two_tower": TwoTowerParams,
    "session": SessionParams,
    "ease": EaseParams,
    "itemknn": ItemKnnParams,
    "gbm": GbmParams,
}
PLANNED: frozenset[str] = frozenset()
"""Not there yet: refused as such, and not as unknown."""

OWN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
"""A family of one's own: `module:Class`."""


def params_of(family: str) -> type[FamilyParams] | type[OwnParams] | None:
    """None where nobody knows it."""
    return FAMILIES.get(family) or (OwnParams if OWN.fullmatch(family) else None)

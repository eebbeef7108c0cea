"""Families that use only the keys: which user liked which item, how often, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from shared.contracts.families.base import FamilyParams
from shared.contracts.ranges import Range, between, one_of


class PopularityParams(FamilyParams):
    """A count has no parameters."""

    meaning = "an item's share of positives, the same for every user: a safe first version."
    no_steps = "popularity counts and isn't trained"
    keeps_rows = replays = False


class MfParams(FamilyParams):
    """Matrix factorisation: an inner product of two vectors, fitted by least squares or by gradient."""

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
    """Neural collaborative filtering: a weighted inner product and hidden layers."""

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
        description="Whether the inner product begins as a factorisation by softmax. Then `train` is an epoch at a learning rate of "
        "0.0002 unless it says otherwise, else 20 at 0.001; so too in a warm run, which begins from its parent.",
    )
    factorisation: float = Field(0.05, gt=0, le=10, description="How small that factorisation keeps its vectors, as `mf` means it.")

    @classmethod
    def usual(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """With a pretrained factorisation one careful epoch is enough; without it many are needed."""
        if params.get("pretrain", True):
            return {"epochs": 1, "learning_rate": 0.0002}
        return {"epochs": 20, "learning_rate": 0.001}

    @model_validator(mode="after")
    def _factorises_something(self) -> NeumfParams:
        if not self.pretrain and self.factorisation != 0.05:
            raise ValueError("params: 'factorisation' has no effect without pretrain: leave it out")
        return self


class SessionParams(FamilyParams):
    """Transformer over the sequence of a user's items."""

    meaning = "a transformer over the items that a user liked, in the order of their times: says what comes next."
    cannot: ClassVar[Mapping[str, str]] = {
        "compile": "its steps are not compiled",
        "mixed_precision": "its layers compute in float32",
        "resident": "its batches are made on the host",
        "processes": "it is trained by one process",
    }
    not_on: ClassVar[Mapping[str, str]] = {"jax": "its batches are of no one shape, and jax compiles each: say tensorflow or torch"}
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
    def usual(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
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
    """Neighbours of items by their common users."""

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

"""Families that use only the keys: which user liked which item, how often, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from shared.contracts.families.base import FamilyParams
from shared.contracts.ranges import NumberRange, between, one_of


class PopularityParams(FamilyParams):
    """A count has no parameters; the half-life of a positive is chosen by the newest ones."""

    meaning = "an item's positives, the newest counting most, the same for every user: a safe first version."
    no_steps = "popularity only counts"
    keeps_rows = replays = False


class MfParams(FamilyParams):
    """Matrix factorisation: an inner product of two vectors, fitted by least squares or by gradient."""

    meaning = (
        "matrix factorisation, by alternating least squares or by gradient (`params.loss`): quick, deterministic for a seed, and its "
        "vectors serve retrieval."
    )
    no_steps = "mf has its own passes (params.sweeps, params.epochs)"
    replays = False
    OF_LOSS: ClassVar[Mapping[str, frozenset[str]]] = {
        "als": frozenset({"unobserved", "sweeps"}),
        "contrast": frozenset({"against", "blend", "damping", "epochs", "learning_rate"}),
    }
    ranges: ClassVar[Mapping[str, NumberRange]] = {
        "params.loss": one_of("als", "softmax"),
        "params.width": between(16, 256, log=True),
        "params.regularisation": between(1e-3, 0.3, log=True),
        "params.unobserved": between(0.02, 2, log=True),
        "params.learning_rate": between(3e-3, 3e-2, log=True),
        "params.against": between(10, 1000, log=True),
        "params.blend": one_of(False, True),
    }

    width: int = Field(64, ge=1, le=1024, description="Width of the vectors.")
    loss: Literal["als", "softmax", "logistic"] = Field(
        "als",
        description="Loss. `als`: weighted least squares over all pairs of user and item. `softmax`: a positive against negatives of its "
        "user, as a choice among them. `logistic`: positives and negatives as separate rows. The last two are slower and rank better.",
    )
    regularisation: float | None = Field(
        None,
        gt=0,
        le=10,
        description="Regularisation of the vectors. Absent: for `als` the strength that ranks the newest positives best, else 0.04.",
    )
    unobserved: float = Field(0.4, gt=0, le=10, description="For `als`: weight of a pair that is not a positive; a positive has 1.")
    sweeps: int = Field(10, ge=1, le=200, description="For `als`: number of solutions of both sides; a third in a warm run.")
    against: float | None = Field(
        None, gt=0, le=1_000_000, description="Number of negatives for each positive; if absent, 100 for `softmax` and 8 for `logistic`."
    )
    blend: bool = Field(
        True, description="For `softmax` and `logistic`: whether a user's vector also contains the vectors of the user's positives."
    )
    damping: float = Field(
        0.5,
        ge=0,
        le=2,
        description="For `softmax` and `logistic`: damping of users with many positives: each of n positives weighs n^-damping.",
    )
    epochs: int = Field(20, ge=1, le=1000, description="For `softmax` and `logistic`: passes over the positives; a third in a warm run.")
    learning_rate: float = Field(0.02, gt=0, le=1, description="For `softmax` and `logistic`: maximum learning rate of Adam.")

    @property
    def takes_weights(self) -> bool:
        return self.loss == "als"

    @model_validator(mode="after")
    def _check_label(self) -> MfParams:
        others = self.OF_LOSS["contrast" if self.loss == "als" else "als"]
        idle = [name for name in others if getattr(self, name) != type(self).model_fields[name].default]
        if idle:
            raise ValueError(f"params: '{min(idle)}' has no effect with loss '{self.loss}'; leave it out")
        return self


class NeumfParams(FamilyParams):
    """Neural collaborative filtering: a weighted inner product and hidden layers."""

    meaning = "neural collaborative filtering (NeuMF): a weighted inner product of two vectors and hidden layers, from keys only."
    ranges: ClassVar[Mapping[str, NumberRange]] = {
        "params.width": between(16, 128, log=True),
        "params.factorisation": between(0.01, 0.2, log=True),
        "params.dropout": between(0.0, 0.5),
        "params.negatives": between(2, 8),
        "train.epochs": between(1, 6),
        "train.learning_rate": between(1e-4, 3e-3, log=True),
    }

    width: int = Field(64, ge=2, le=1024, description="Width of the vectors of the inner product.")
    layers: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        (64, 32, 16),
        min_length=1,
        max_length=8,
        description="Widths of the hidden layers. Their input vectors together have the width of the first layer.",
    )
    dropout: float = Field(0, ge=0, lt=1, description="Share of the inputs of each hidden layer that is dropped in training.")
    regularisation: float = Field(0, ge=0, le=10, description="Weight of the squares of vectors in each row's loss.")
    negatives: int = Field(4, ge=1, le=100, description="Sampled negatives for each positive, drawn again in each epoch.")
    verified: bool = Field(
        False,
        description="Whether sampled negatives exclude the user's positives in the training rows and, in a warm run, earlier ones. Needs "
        "two bytes per positive; half a percent of the other items is also never drawn.",
    )
    pretrain: bool = Field(
        True,
        description="Whether the inner product starts from a factorisation by softmax. Then the default of `train` is one epoch at a "
        "learning rate of 0.0002, else 20 epochs at 0.001; also in a warm run, which starts from its parent.",
    )
    factorisation: float = Field(0.05, gt=0, le=10, description="Regularisation of that factorisation, as in `mf`.")

    @classmethod
    def usual(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """With a pretrained factorisation one careful epoch is enough; without it many are needed."""
        if params.get("pretrain", True):
            return {"epochs": 1, "learning_rate": 0.0002}
        return {"epochs": 20, "learning_rate": 0.001}

    @model_validator(mode="after")
    def _check_factorisation(self) -> NeumfParams:
        if not self.pretrain and self.factorisation != 0.05:
            raise ValueError("params: 'factorisation' has no effect without pretrain; leave it out")
        return self


class SessionParams(FamilyParams):
    """Transformer over the sequence of a user's items, and the features of items."""

    meaning = "a transformer over the user's positives, ordered by time: predicts the next item, also by the features of items."
    cannot: ClassVar[Mapping[str, str]] = {
        "compile": "its steps are not compiled",
        "mixed_precision": "its layers compute in float32",
        "resident": "its batches are made on the host",
        "processes": "it is trained by one process",
        "schedule": "its learning rate is constant",
    }
    not_on: ClassVar[Mapping[str, str]] = {"jax": "jax compiles each of its batch shapes; set tensorflow or torch"}
    chooses_epochs = True
    ranges: ClassVar[Mapping[str, NumberRange]] = {
        "params.width": one_of(32, 64, 96, 128),
        "params.blocks": between(1, 3),
        "params.length": one_of(20, 50, 100, 200),
        "params.dropout": between(0.0, 0.6),
        "params.objective": one_of("next", "masked"),
        "train.epochs": between(20, 200),
        "train.learning_rate": between(3e-4, 3e-3, log=True),
    }

    width: int = Field(64, ge=2, le=1024, description="Width of the items' vectors, and of each layer.")
    blocks: int = Field(2, ge=1, le=16, description="Number of blocks, each with attention and a hidden layer.")
    heads: int = Field(2, ge=1, le=64, description="Number of attention heads; the width must be a multiple of it.")
    length: int = Field(50, ge=1, le=1000, description="Number of a user's newest items that are used.")
    dropout: float = Field(0.2, ge=0, lt=1, description="Share of the inputs and outputs of a block that is dropped in training.")
    objective: Literal["next", "masked"] = Field(
        "next",
        description="Training objective. `next`: the next item from the items before it. `masked`: hidden items from the items on both "
        "sides.",
    )
    mask: float = Field(
        0.3,
        gt=0,
        lt=1,
        description="For `masked`: share of hidden items, drawn again in each epoch; in as many windows only the last item is hidden.",
    )
    reversed: bool = Field(
        False, description="Whether each sequence is also trained backwards, with a marker: twice as many windows per epoch."
    )
    against: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Number of items, drawn for each step, to choose from. Absent: the whole catalogue; of more than 131,072 items, that "
        "many are drawn.",
    )
    unknown_items: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Share of the items whose code is hidden in a step, so that new items are scored by their features. If absent, 0.1 for "
        "items with features besides the key.",
    )

    @classmethod
    def usual(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """A step takes few sequences, each of many items."""
        return {"epochs": "auto", "learning_rate": 0.001}

    @model_validator(mode="after")
    def _check_together(self) -> SessionParams:
        if self.width % self.heads:
            raise ValueError(f"params: width {self.width} is not a multiple of heads, {self.heads}")
        if self.objective == "next" and self.mask != 0.3:
            raise ValueError("params: 'mask' has no effect with objective 'next'; leave it out")
        return self


class EaseParams(FamilyParams):
    """A weight for each pair of items, in closed form."""

    meaning = (
        "a weight for each pair of items, in closed form: strong for thousands of items; time grows with the cube of their number, "
        "or of the users' if that is smaller, memory with the square."
    )
    no_steps = "ease is solved in closed form, without steps"
    keeps_rows = replays = False
    ranges: ClassVar[Mapping[str, NumberRange]] = {"params.regularisation": between(10, 10_000, log=True)}

    regularisation: float | None = Field(
        None, gt=0, le=1e9, description="Regularisation of the weights, in positives; if absent, the best by held-out positives."
    )


class ItemKnnParams(FamilyParams):
    """Neighbours of items by their common users."""

    meaning = "the nearest neighbours of the user's positives: quick, for catalogues of any size."
    no_steps = "itemknn counts common users, without steps"
    keeps_rows = replays = False
    ranges: ClassVar[Mapping[str, NumberRange]] = {
        "params.neighbours": between(20, 1000, log=True),
        "params.shrink": between(0.1, 1000, log=True),
        "params.damping": between(0, 1.0),
        "params.pull": between(0, 1.0),
    }

    neighbours: int = Field(100, ge=1, le=10_000, description="Number of nearest neighbours per item.")
    shrink: float = Field(0.0, ge=0, le=1e6, description="Added to the denominator, against chance in items with few users.")
    damping: float = Field(1.0, ge=0, le=2, description="Damping of users with many positives: each of n positives weighs n^-damping.")
    pull: float = Field(
        0.4, ge=0, le=1, description="Exponent of the popularity in the denominator: 0.5 gives the cosine, less favours popular items."
    )


class TransitionsParams(FamilyParams):
    """Items that follow the user's newest items."""

    meaning = "the items that follow the user's newest items in the sequences of all users: quick, a strong baseline for the next item."
    no_steps = "transitions are counted, without steps"
    keeps_rows = False
    replays = False
    ranges: ClassVar[Mapping[str, NumberRange]] = {
        "params.window": between(1, 50, log=True),
        "params.recency": between(0.0, 2.0),
        "params.damping": between(0.0, 1.0),
    }

    window: int = Field(
        10, ge=1, le=1000, description="Number of items after an item in a sequence that follow it; a nearer one counts more."
    )
    length: int = Field(50, ge=1, le=1000, description="Number of a user's newest items that are used.")
    recency: float = Field(
        1.0, ge=0, le=10, description="Exponent of a user's item's weight: with n newer items of the user it is (n + 1)^-recency."
    )
    damping: float = Field(
        0.5, ge=0, le=2, description="Damping of popular items in a user's sequence: one with n places weighs n^-damping."
    )
    followers: int = Field(100, ge=1, le=10_000, description="Number of followers that are stored per item.")

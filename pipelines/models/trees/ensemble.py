"""Decision trees as arrays. treelite reads them from the model of any library; this module scores rows with them, and writes them as an
ONNX operator that gives equal scores.

The operator is written here: skl2onnx 1.20 answered 518 of 1,600 rows of a forest wrongly (rows with missing values or at thresholds);
onnxmltools 1.16 answered all rows of boosted trees alike, but needs a converter per library and adds outputs that a served graph drops.

Libraries compare float32 features with thresholds of other precisions. Here a threshold is the float32 with the same result for each
float32 feature, so that every runtime takes the same branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.onnx_builder import ML, OnnxBuilder
from shared.domain.errors import BadData

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
LEAF = -1
_LESS = 2
"""treelite's number of the comparison `<`."""
NODE_BYTES = 60
"""Approximate bytes of a node in an exported graph."""


@dataclass(frozen=True)
class Trees:
    """Nodes of all trees in a row: each tree's root first, children after their parents."""

    feature: Ints
    """The column that a node reads, or `LEAF`."""
    threshold: Floats
    yes: Ints
    """The next node for a value below the threshold (or equal to it, if `strict` is False), as an index among all nodes."""
    no: Ints
    missing: NDArray[np.bool_]
    """Whether a row with a missing value goes to `yes`."""
    value: Floats
    """Value of a leaf."""
    roots: Ints
    strict: bool

    def check(self, columns: int) -> None:
        """Raises BadData unless the arrays are an ensemble over `columns` columns whose walks end: a file may be damaged or foreign."""
        count, nodes = len(self.feature), np.flatnonzero(self.feature != LEAF)
        sizes = {len(array) for array in (self.threshold, self.yes, self.no, self.missing, self.value)}
        ends = np.append(self.roots[1:], count)
        sound = sizes == {count} and len(self.roots) > 0 and self.roots[0] == 0 and bool((ends > self.roots).all())
        if sound and len(nodes):
            end = ends[np.searchsorted(self.roots, nodes, side="right") - 1]
            below = [(child[nodes] > nodes) & (child[nodes] < end) for child in (self.yes, self.no)]
            of = self.feature[nodes]
            sound = bool((below[0] & below[1] & (of >= 0) & (of < columns)).all())
        if not sound or not (np.isfinite(self.threshold).all() and np.isfinite(self.value).all()):
            raise BadData(f"the trees are damaged, or do not have {columns} columns")

    def score(self, matrix: Floats) -> Floats:
        """Returns the sum over all trees."""
        total = np.zeros(len(matrix), np.float32)
        rows = np.arange(len(matrix))
        for root in self.roots:
            at = np.full(len(matrix), root)
            left = rows if self.feature[root] != LEAF else rows[:0]
            while len(left):
                nodes = at[left]
                values, threshold = matrix[left, self.feature[nodes]], self.threshold[nodes]
                below = values < threshold if self.strict else values <= threshold
                at[left] = np.where(below | (np.isnan(values) & self.missing[nodes]), self.yes[nodes], self.no[nodes])
                left = left[self.feature[at[left]] != LEAF]
            total += self.value[at]
        return total

    def moved(self, slope: float, shift: float) -> Trees:
        """Returns trees whose sum is `slope` times the sum of these, plus `shift`, which all leaves of the first tree get."""
        value = self.value * np.float32(slope)
        value[: self.roots[1] if len(self.roots) > 1 else None] += np.float32(shift)
        return replace(self, value=value)

    def lower(self, build: OnnxBuilder, source: str) -> str:
        """Adds the operator from [rows, columns] to [rows, 1]; returns its output."""
        tree = np.searchsorted(self.roots, np.arange(len(self.feature)), side="right") - 1
        first = self.roots[tree]
        leaf = self.feature == LEAF
        inner = b"BRANCH_LT" if self.strict else b"BRANCH_LEQ"
        leaves = np.flatnonzero(leaf)

        def inside(children: Ints) -> list[int]:
            indices: list[int] = np.where(leaf, 0, children - first).tolist()
            return indices

        return build.node(
            "TreeEnsembleRegressor",
            source,
            domain=ML,
            n_targets=1,
            aggregate_function="SUM",
            post_transform="NONE",
            nodes_treeids=tree.tolist(),
            nodes_nodeids=(np.arange(len(tree)) - first).tolist(),
            nodes_featureids=np.where(leaf, 0, self.feature).tolist(),
            nodes_values=np.where(leaf, np.float32(0), self.threshold).tolist(),
            nodes_modes=[b"LEAF" if is_leaf else inner for is_leaf in leaf],
            nodes_truenodeids=inside(self.yes),
            nodes_falsenodeids=inside(self.no),
            nodes_missing_value_tracks_true=np.where(leaf, False, self.missing).astype(int).tolist(),
            target_treeids=tree[leaves].tolist(),
            target_nodeids=(leaves - first[leaves]).tolist(),
            target_ids=[0] * len(leaves),
            target_weights=self.value[leaves].tolist(),
        )

    def treelite(self, columns: int) -> Any:
        """Returns a treelite model of the trees. Its output is the sum of the leaves that a row reaches."""
        from treelite import model_builder

        ends = np.append(self.roots[1:], len(self.feature))
        count, comparison = len(self.roots), "<" if self.strict else "<="
        builder: Any = model_builder.ModelBuilder(
            threshold_type="float32",
            leaf_output_type="float32",
            metadata=model_builder.Metadata(columns, "kRegressor", False, 1, [1], (1, 1)),
            tree_annotation=model_builder.TreeAnnotation(count, [0] * count, [0] * count),
            postprocessor=model_builder.PostProcessorFunc(name="identity"),
            base_scores=[0.0],
        )
        for first, end in zip(self.roots.tolist(), ends.tolist(), strict=True):
            builder.start_tree()
            for node in range(first, end):
                builder.start_node(node - first)
                if self.feature[node] == LEAF:
                    builder.leaf(float(self.value[node]))
                else:
                    builder.numerical_test(
                        int(self.feature[node]),
                        float(self.threshold[node]),
                        default_left=bool(self.missing[node]),
                        opname=comparison,
                        left_child_key=int(self.yes[node]) - first,
                        right_child_key=int(self.no[node]) - first,
                    )
                builder.end_node()
            builder.end_tree()
        return builder.commit()

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        names = ("feature", "threshold", "yes", "no", "missing", "value", "roots")
        return {name: getattr(self, name) for name in names} | {"strict": np.array(self.strict)}


def trees_of(arrays: Mapping[str, NDArray[Any]]) -> Trees:
    kinds: Mapping[str, Any] = {"threshold": np.float32, "value": np.float32, "missing": np.bool_}
    names = ("feature", "threshold", "yes", "no", "missing", "value", "roots")
    return Trees(**{name: arrays[name].astype(kinds.get(name, np.int32)) for name in names}, strict=bool(arrays["strict"]))


def trees_from(model: Any) -> Trees:
    """Returns the trees of a treelite model, which any library's trees can become."""
    trees = [model.get_tree_accessor(at) for at in range(model.num_tree)]
    if any(tree.get_field("has_categorical_split").any() for tree in trees):
        raise BadData("the trees have splits by category, but only number splits are supported")
    sizes = [len(tree.get_field("node_type")) for tree in trees]
    roots = np.cumsum([0, *sizes[:-1]]).astype(np.int32)

    def nodes(name: str) -> NDArray[Any]:
        return np.concatenate([tree.get_field(name) for tree in trees])

    leaf, begins = nodes("cleft") == -1, np.repeat(roots, sizes)
    thresholds = np.where(leaf, 0, nodes("threshold"))
    share = 1 / len(trees) if model.get_header_accessor().get_field("average_tree_output")[0] else 1
    return Trees(
        np.where(leaf, LEAF, nodes("split_index")).astype(np.int32),
        not_above(thresholds),
        (np.where(leaf, 0, nodes("cleft")) + begins).astype(np.int32),
        (np.where(leaf, 0, nodes("cright")) + begins).astype(np.int32),
        ~leaf & (nodes("default_left") != 0),
        (np.where(leaf, nodes("leaf_value"), 0) * share).astype(np.float32),
        roots,
        bool((nodes("cmp")[~leaf] == _LESS).any()),
    )


def not_above(thresholds: NDArray[np.float64]) -> Floats:
    """Returns the largest float32 that is not above each threshold, clipped to float32's range: no float32 feature lies between the two."""
    most = float(np.finfo(np.float32).max)
    bounded = np.clip(thresholds, -most, most)
    near = bounded.astype(np.float32)
    rounded: Floats = np.where(near > bounded, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)
    return rounded

"""Train: fits the popularity baseline and the spec's model on etl's files.

Publishes the files of a fit (pipelines.stages.fitting) and those of the spec's further baseline (pipelines.models.baseline).
"""

from __future__ import annotations

from pipelines.stages.fitting import EncodedData, fit
from pipelines.stages.runner import Context, main
from shared.stage_process import Outcome


def run(context: Context) -> Outcome:
    etl = EncodedData(context.fetcher("etl"), lambda name: context.has("etl", name))
    return fit(context, context.spec.recommender.model, etl)


if __name__ == "__main__":
    main("train", run)

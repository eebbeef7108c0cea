"""Train: the popularity baseline and the spec's model, from what etl published.

Publishes what a fit does (pipelines.stages.fitting), and the files of a further baseline beside it, where the spec names one
(pipelines.models.baseline).
"""

from __future__ import annotations

from pipelines.stages.fitting import EncodedData, fit
from pipelines.stages.runner import Context, Outcome, main


def run(context: Context) -> Outcome:
    etl = EncodedData(context.fetcher("etl"), lambda name: context.has("etl", name))
    return fit(context, context.spec.recommender.model, etl)


if __name__ == "__main__":
    main("train", run)

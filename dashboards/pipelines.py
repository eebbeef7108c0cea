"""Dashboard of runs: queue, stages, ends and triggers."""

from __future__ import annotations

from dashboards.asked import mean, newest, quantile, total
from dashboards.board import MOVES, RETRAININGS, Board, Row
from dashboards.form import COUNT, PLAIN, SECONDS, Query, bars, lines, number

RUNS = Row(
    "Runs",
    [
        number("Waiting", COUNT, "Pending runs.", "operate.md#eyasqueuegrows", Query(newest("eyas_run_queue", where='state="waiting"'))),
        number(
            "Active",
            COUNT,
            "Runs with an active stage.",
            "operate.md#eyasqueuegrows",
            Query(newest("eyas_run_queue", where='state="active"')),
        ),
        lines(
            "Queue",
            COUNT,
            "Pending and active runs. If the pending runs only rise, EYAS_MAX_RUNS is too low for the requests.",
            "operate.md#eyasqueuegrows",
            Query(newest("eyas_run_queue", "state", where=""), "{{state}}"),
        ),
        lines(
            "Ended runs",
            COUNT,
            "Ended runs since the start of the control planes, by state: registered, rejected by a gate, failed, cancelled.",
            "operate.md#eyasrunfailed",
            Query(total("eyas_runs_total", "recommender", "state"), "{{recommender}} {{state}}"),
        ),
        lines(
            "Dead letters",
            COUNT,
            "Runs that gave up after all attempts, by stage.",
            "operate.md#eyasdeadletter",
            Query(total("eyas_dead_letters_total", "recommender", "stage"), "{{recommender}} {{stage}}"),
        ),
        lines(
            "Versions",
            PLAIN,
            "Number of the stable version: each step up is a promoted version.",
            "rollouts.md",
            Query(newest("eyas_serving_version", "recommender"), "{{recommender}}"),
        ),
    ],
)
STAGES = Row(
    "Stages",
    [
        bars(
            "Mean time of a stage",
            SECONDS,
            "Mean time from start to manifest since the start of the control planes, including the wait for a node.",
            "training.md",
            Query(f"{total('eyas_stage_seconds_sum', 'stage')} / {total('eyas_stage_seconds_count', 'stage')}", "{{stage}}"),
        ),
        lines(
            "Stage time, mean",
            SECONDS,
            "Mean time of recent stages. If it grows with the data, raise `resources`, or use another engine.",
            "training.md",
            Query(mean("eyas_stage_seconds", "stage"), "{{stage}}"),
        ),
        lines(
            "Stage time, 90th percentile",
            SECONDS,
            "90th percentile of recent stages, within the limits of the buckets.",
            "training.md",
            Query(quantile(0.9, "eyas_stage_seconds", "stage"), "{{stage}}"),
        ),
        lines(
            "Published stages",
            COUNT,
            "Published stages since the start of the control planes.",
            "operate.md#eyasrunfailed",
            Query(total("eyas_stage_seconds_count", "recommender", "stage"), "{{recommender}} {{stage}}"),
            width=12,
        ),
        lines(
            "Reused stages",
            COUNT,
            "Stages that reuse an earlier attempt with equal inputs, without computation.",
            "training.md",
            Query(total("eyas_stages_reused_total", "recommender", "stage"), "{{recommender}} {{stage}}"),
            width=12,
        ),
    ],
)
RETRAINED = Row(
    "Retraining",
    [
        lines(
            "Retrainings",
            COUNT,
            "Retrainings since the start of the control planes, by trigger and by mode (warm or full).",
            "retraining.md",
            Query(total("eyas_retrainings_total", "recommender", "trigger", "mode"), "{{recommender}} {{trigger}} {{mode}}"),
        ),
        lines(
            "Held-back triggers",
            COUNT,
            "Triggers that a cooldown, a limit or an active run held back.",
            "retraining.md",
            Query(total("eyas_retrainings_held_total", "recommender", "trigger"), "{{recommender}} {{trigger}}"),
        ),
        lines(
            "Retrainings in a row without effect",
            COUNT,
            "At `retrain.give_up_after` no new retraining starts, and a person has to check.",
            "operate.md#eyasretraineralerting",
            Query(newest("eyas_retrainings_fruitless", "recommender"), "{{recommender}}"),
        ),
    ],
)
BOARD = Board(
    "pipelines", "pipelines", "Runs and their stages: queue, durations and results.", (RUNS, STAGES, RETRAINED), (RETRAININGS, MOVES)
)

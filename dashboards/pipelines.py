"""Dashboard of runs: queue, stages, ends and triggers."""

from __future__ import annotations

from dashboards.asked import mean, newest, quantile, total
from dashboards.board import MOVES, RETRAININGS, Board, Row
from dashboards.form import COUNT, PLAIN, SECONDS, Query, bars, lines, number

RUNS = Row(
    "Runs",
    [
        number(
            "Waiting",
            COUNT,
            "Runs that wait for their turn.",
            "operate.md#eyasqueuegrows",
            Query(newest("eyas_run_queue", where='state="waiting"')),
        ),
        number(
            "Active",
            COUNT,
            "Runs with a stage under way.",
            "operate.md#eyasqueuegrows",
            Query(newest("eyas_run_queue", where='state="active"')),
        ),
        lines(
            "Queue",
            COUNT,
            "A line of waiting runs that only rises: more is asked for than EYAS_MAX_RUNS lets through.",
            "operate.md#eyasqueuegrows",
            Query(newest("eyas_run_queue", "state", where=""), "{{state}}"),
        ),
        lines(
            "Runs that ended",
            COUNT,
            "Since the control planes began, by how: registered, rejected by a gate, failed, cancelled.",
            "operate.md#eyasrunfailed",
            Query(total("eyas_runs_total", "recommender", "state"), "{{recommender}} {{state}}"),
        ),
        lines(
            "Dead letters",
            COUNT,
            "Runs that gave up after all their attempts, by the stage that they gave up in.",
            "operate.md#eyasdeadletter",
            Query(total("eyas_dead_letters_total", "recommender", "stage"), "{{recommender}} {{stage}}"),
        ),
        lines(
            "Versions",
            PLAIN,
            "The stable version: each step up is a run that made it all the way.",
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
            "Of all that were published since the control planes began, from start to manifest: waiting for a node is in it.",
            "training.md",
            Query(f"{total('eyas_stage_seconds_sum', 'stage')} / {total('eyas_stage_seconds_count', 'stage')}", "{{stage}}"),
        ),
        lines(
            "Time of stages, mean",
            SECONDS,
            "Of those that were published lately. One that grows with the data wants `resources`, or another engine.",
            "training.md",
            Query(mean("eyas_stage_seconds", "stage"), "{{stage}}"),
        ),
        lines(
            "Time of stages, 9 of 10",
            SECONDS,
            "Of those that were published lately; as exact as its buckets.",
            "training.md",
            Query(quantile(0.9, "eyas_stage_seconds", "stage"), "{{stage}}"),
        ),
        lines(
            "Stages published",
            COUNT,
            "Since the control planes began.",
            "operate.md#eyasrunfailed",
            Query(total("eyas_stage_seconds_count", "recommender", "stage"), "{{recommender}} {{stage}}"),
            width=12,
        ),
        lines(
            "Stages reused",
            COUNT,
            "Stages that an earlier, equal attempt stood for, so that nothing was computed.",
            "training.md",
            Query(total("eyas_stages_reused_total", "recommender", "stage"), "{{recommender}} {{stage}}"),
            width=12,
        ),
    ],
)
RETRAINED = Row(
    "What starts them",
    [
        lines(
            "Retrainings",
            COUNT,
            "Since the control planes began, by trigger and by warm or full.",
            "retraining.md",
            Query(total("eyas_retrainings_total", "recommender", "trigger", "mode"), "{{recommender}} {{trigger}} {{mode}}"),
        ),
        lines(
            "Triggers held back",
            COUNT,
            "That would have fired, had not a cooldown, a limit or a run under way held them.",
            "retraining.md",
            Query(total("eyas_retrainings_held_total", "recommender", "trigger"), "{{recommender}} {{trigger}}"),
        ),
        lines(
            "Retrainings in a row that didn't help",
            COUNT,
            "At `retrain.give_up_after` of them none is started any more, and somebody has to look.",
            "operate.md#eyasretraineralerting",
            Query(newest("eyas_retrainings_fruitless", "recommender"), "{{recommender}}"),
        ),
    ],
)
BOARD = Board(
    "pipelines",
    "pipelines",
    "Runs and their stages: do they get their turn, how long do they take, and how do they end?",
    (RUNS, STAGES, RETRAINED),
    (RETRAININGS, MOVES),
)

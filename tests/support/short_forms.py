"""Parts of specs in all short forms that the parser accepts."""

from __future__ import annotations

SHORT_FORMS = (
    "data: {interactions: {uri: a.csv, min_interactions: 5, since: 1.5h}}",
    "data: {interactions: {uri: a.csv, min_interactions: {user: 5}}}",
    "data: {validate: {bad_rows: {stop: 10%}, nulls: {rating: 0.01}, range: {rating: [null, 5]}, future: 90 s}}",
    "split: {test: 20%}",
    "split: {test: 0.2}",
    "split: {test: 7d}",
    "features: [{categorify: userId}, {categorify: movieId}, {log: price}, {count_encode: userId}]",
    "features: [{categorify: [userId, movieId]}, {target_encode: {of: movieId, target: label}}]",
    "features: [{categorify: [userId, movieId]}, {vector: {of: movieId, width: 8, encode: {column: a, encoder: a.onnx, size: 224x224}}}]",
    "features: [{categorify: [userId, movieId]}, {vector: {of: movieId, width: 8, encode: {column: a, encoder: a.onnx, size: [9, 9]}}}]",
    "evaluate: {users: all, pairs: 1e9}",
    "evaluate: {pairs: 1000000}",
    "model: {family: my_module.inner:Model, params: {anything: [1, {of: text}]}}",
    "model: {train: {batch_size: auto, mixed_precision: true}}",
    "model: {train: {mixed_precision: float16, loss_scale: 128, checkpoint: null}}",
    "model: {family: gbm, params: {depth: null}, tune: {params.trees: {from: 10, to: 50, log: true}, train.validation: {of: [0.1, 0.2]}}}",
    "model: {preset: ml-1m-mf, params: {width: 32}}",
    "gates: [{metric: hr@10, not_worse_than: serving, by: 0.01, confidence: 95%}, {memory: 2Gi}, {size: 1073741824}, {latency_p50: 5ms}]",
    "serve: {filter: [{not_seen: ever}, {available: true}, 'age <= user.age'], fresh: 10%, store: {ttl: 7d}}",
    "serve: {filter: [{not_seen: 30d}], order: {rules: [{pin: 3}, {pin: {item: a}, at: 2}, {pin: 'price > 3', at: 3}], campaigns: a.yaml}}",
    "serve: {attributes: {price: number, genres: texts}, context: {age: number}}",
    "rollout: {shadow: 5m, steps: [1%, 0.25, {weight: 50%, min: 10m}]}",
    "serve: {order: {campaigns: [{name: a, from: 2026-12-01 00:00:00+01:00, until: 2026-12-24T00:00:00Z, rules: [{pin: 3}]}]}}",
    "rollout: {shadow: {for: 5m, min_answers: 500}, analysis: {max_harm: 2%, guardrails: {errors: 'off', empty: null}}}",
    "retrain: {on: [{new_events: 1000000}, {kpi: {hit_rate: -10%, conversion: {min: 0.05}}}, {drift: {new: 5%, psi: null}}]}",
    "retrain: {on: [{new_events: {count: 5, mode: warm}}, {new_data: {every: 1d}}, {alert: {names: [a]}}], follow_up: [12h, 2d]}",
    "retrain: {schedule: '@daily', timezone: Europe/Berlin, mode: auto, auto: {grown: null}, warm: {replay: 20%}}",
    "resources: {etl: {cpu: 500m, memory: 512Mi}, train: {cpu: 2, memory: 1.5Gi, timeout: 1w}, evaluate: {cpu: 0.5}}",
)

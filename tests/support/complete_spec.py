"""A spec that says nearly everything that a spec can say: of a lake, an ETL engine and GPUs that a test has none of."""

COMPLETE = """
apiVersion: eyas/v1
name: movielens
data:
  interactions: {uri: s3://lake/ratings/*.parquet, also: events}
  items: {uri: s3://lake/movies.parquet, key: movieId}
  users: {uri: s3://lake/users.parquet, key: userId}
  validate: {nulls: {userId: 0}, range: {rating: [0.5, 5]}, drift: {warn: 0.1, stop: 0.3}}
schema: {user: userId, item: movieId, time: timestamp, label: {column: rating, positive: ">= 4"}}
features:
  - categorify: [userId, movieId]
    min_count: 2
  - multi_hot: genres
    separator: "|"
  - cyclic: {of: timestamp, periods: [day, week]}
  - target_encode: {of: movieId, target: label, folds: 5, smoothing: 20}
  - count_encode: userId
  - lag: {of: timestamp, by: userId}
  - cross: [genres, hour]
    buckets: 10000
  - vector: {of: movieId, from: s3://lake/posters.parquet, width: 512}
split: {by: time, test: 7d, refit: true}
evaluate: {users: 20000}
model:
  family: neumf
  framework: tensorflow
  params: {width: 64, layers: [256, 128, 64], negatives: 4, dropout: 0.2}
  train: {epochs: 20, batch_size: auto, mixed_precision: true, compile: true, early_stop: {metric: ndcg@10, patience: 3}}
gates:
  - {metric: hr@10/99, min: 0.60}
  - {metric: ndcg@10, not_worse_than: serving, by: 1%, confidence: 90%, inconclusive: accept}
  - {metric: hr@10, better_than: popularity}
  - {metric: hr@10, slice: user_history<=5, min: 0.40}
  - {parity: 1e-5}
  - {latency_p99: 20ms, batch: 500}
serve:
  retrieve: {candidates: 500, fallback: popular}
  filter: [not_seen: 30d, available: true, "age_rating <= user.age"]
  order: {diversity: 0.2, campaigns: s3://lake/campaigns.yaml}
rollout:
  shadow: 5m
  steps: [1%, 5%, 25%, 50%]
  analysis: {goal: hit_rate, window: 30m, max_harm: 2%, attribution: 30m, guardrails: {errors: "< 0.1%", latency_p99: "< 1.2x"}}
retrain:
  schedule: "0 3 * * *"
  timezone: Europe/Berlin
  on: [drift: {psi: 0.2}, kpi: {hit_rate: -10%, season: auto}, new_events: 1000000]
  mode: warm
  cooldown: 6h
resources:
  etl: {engine: nvtabular, gpu: 1, memory: 32Gi}
  train: {gpu: 1, memory: 64Gi, processes: 1}
"""

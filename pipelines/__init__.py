"""The code of a run's stages: data, features, models, training, evaluation, export."""

"""What runs once and ends, inside a Job: data, features, models, training, evaluation, export."""

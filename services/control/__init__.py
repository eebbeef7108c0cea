"""Reconcile: runs, rollouts, retraining and the placement of versions. Talks to ports alone."""

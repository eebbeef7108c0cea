"""Control loops: runs, rollouts, retraining and the placement of versions. Depends on ports alone."""

"""What was shown and what users did, in SQL, and what follows from it: hits and hit rates."""

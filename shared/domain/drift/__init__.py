"""Has the world moved away from a serving version? Detectors, what they say of one look, and when a reading counts.

Pure statistics on small samples, standard library only. Three things make a number an alarm: it is larger than the spec's
threshold after what chance alone explains is taken off, chance explains it less often than `limit` allows, and it stands for
several looks.
"""

"""How far counts must be from noise to count as seen: one rule for all packages.

Inference reads these, too: another value changes the spaces that it finds, and so what is released.
"""

DETECTION_SE = 3.0
"""Standard errors from which on counts show what they are of, and up to which noise may hide it (tuned; effect not
measured)."""

HINT_SE = 2.0
"""Standard errors from which on counts hint at what they are of, and below which they show nothing (tuned; half and
twice it change widths on a census by 3 and −27 %)."""

FALSE_ALARM = 0.0005
"""Chance that noise passes for rows, or for structure of them, in one look (tuned; effect not measured)."""

"""What was compared, and what differed."""

import math

faults = []
compared = [0]


def same(where, printed, known, tolerance=1e-12):
    """Compares two values or lists; numbers to a relative tolerance."""
    compared[0] += 1
    if isinstance(printed, list) and isinstance(known, list) and len(printed) == len(known):
        close = all(math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-12) for a, b in zip(printed, known))
    elif isinstance(printed, (int, float)) and isinstance(known, (int, float)):
        close = math.isclose(printed, known, rel_tol=tolerance, abs_tol=1e-12)
    else:
        close = printed == known
    if not close:
        faults.append(f"{where}: printed {printed}, computed {known}")

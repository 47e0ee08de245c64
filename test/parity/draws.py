"""How many drawn cases a test tries; test/Draws.h is the same for tests in C++."""

import os


def draw_count(count: int) -> int:
    """`count`, or LMC_FUZZ times as many if that environment variable is set; at least 1.

    `./dev test long` runs every test that has "drawn" in its name with a large LMC_FUZZ.
    """
    return max(1, int(count * float(os.environ.get("LMC_FUZZ", "1"))))

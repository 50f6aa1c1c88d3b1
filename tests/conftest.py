"""How property tests run: few examples and no deadline, for a suite that is fast where it is busy.

Where ``CI`` is set the examples are always the same; elsewhere each run draws new ones.
"""

import os

from hypothesis import settings

settings.register_profile(
    "rankfold", deadline=None, max_examples=40, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("rankfold")

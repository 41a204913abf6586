"""Whether a reader of hostile text takes time in proportion to its length."""

import time
from collections.abc import Callable


def is_linear(read: Callable[[str], object], small: str, large: str) -> bool:
    """Whether large, which is twice as long as small, takes less than 3 times as long.

    Quadratic work would take 4 times as long. A busy machine disturbs one try, slow code fails all.
    """

    def seconds(text: str) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            read(text)
            best = min(best, time.process_time() - start)
        return best

    return any(seconds(large) < 3 * seconds(small) for _ in range(4))

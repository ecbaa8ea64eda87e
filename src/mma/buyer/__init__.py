"""What to buy next while a run trains: labels, images, or nothing. numpy only; never imports torch.

`decide(terms, earlier, now, rng)` is the one entry: the settings, earlier purchases, the situation now. The rest are its
nouns, how they are written down, and how the error is measured.
"""

from mma.buyer.decide import decide
from mma.buyer.situation import (
    Bought,
    Measurement,
    Purchase,
    Situation,
    Terms,
    as_row,
    from_row,
    measure,
)

__all__ = ["Bought", "Measurement", "Purchase", "Situation", "Terms", "as_row", "decide", "from_row", "measure"]

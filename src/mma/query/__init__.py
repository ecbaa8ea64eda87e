"""Which images to ask about: uncertainty x diversification, on plain arrays. Never imports torch."""

from mma.query.candidates import Candidates
from mma.query.diversity import DIVERSITY, Diversity, mean_cosine_similarity
from mma.query.strategy import AUG_VIEWS, Query, Selection, names
from mma.query.uncertainty import UNCERTAINTY, diff2, entropy, max_

__all__ = [
    "AUG_VIEWS",
    "DIVERSITY",
    "UNCERTAINTY",
    "Candidates",
    "Diversity",
    "Query",
    "Selection",
    "diff2",
    "entropy",
    "max_",
    "mean_cosine_similarity",
    "names",
]

"""Which images to ask about: uncertainty x diversification, coverage, or both; on plain arrays. Never imports torch."""

from mma.query.candidates import Candidates, Labeled, Picks
from mma.query.diversity import DIVERSITY, Diversity, mean_cosine_similarity
from mma.query.query import AUG_VIEWS, Query, Selection, names
from mma.query.strategies import STRATEGIES, Strategy
from mma.query.uncertainty import UNCERTAINTY, diff2, entropy, max_

__all__ = ["AUG_VIEWS", "DIVERSITY", "STRATEGIES", "UNCERTAINTY", "Candidates", "Diversity", "Labeled", "Picks"]
__all__ += ["Query", "Selection", "Strategy", "diff2", "entropy", "max_", "mean_cosine_similarity", "names"]

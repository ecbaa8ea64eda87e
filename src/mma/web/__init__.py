"""The labeling page: a small server for one person's browser. It never loads torch."""

from mma.web.server import serve

__all__ = ["serve"]

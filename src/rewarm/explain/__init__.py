"""Why was it a miss? What a directory has known, and how a program differs from the nearest of it."""

from rewarm.explain.catalogue import Catalogue, Remembered
from rewarm.explain.difference import compare_entries
from rewarm.explain.explainer import Explainer

__all__ = ["Catalogue", "Explainer", "Remembered", "compare_entries"]

"""Starts that have been before: what is done ahead of the program, from what earlier starts of it did."""

from rewarm.restart.ahead import Ahead, Loaded, Loader, Opened, Reader
from rewarm.restart.loads import Load, Way

__all__ = ["Ahead", "Load", "Loaded", "Loader", "Opened", "Reader", "Way"]

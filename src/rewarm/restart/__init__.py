"""Starts that have been before: what is done ahead of the program, from what earlier starts of it did."""

from rewarm.restart.ahead import Ahead, Loaded, Loader, Opened, Reader
from rewarm.restart.loads import Load, Record, Way
from rewarm.restart.surroundings import Surroundings, surroundings

__all__ = ["Ahead", "Load", "Loaded", "Loader", "Opened", "Reader", "Record", "Surroundings", "Way", "surroundings"]

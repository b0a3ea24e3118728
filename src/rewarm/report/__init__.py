"""The report of starts and of a cache directory: what was done when, what it cost and what it saved.

Not promised: more than the runs and entries on disk still say. A start whose runs are gone cannot be reported on.
"""

from rewarm.report.as_json import to_json
from rewarm.report.building import Kind, Sources, build
from rewarm.report.html import to_html
from rewarm.report.model import SCHEMA, Report
from rewarm.report.starts import Start, chosen_starts
from rewarm.report.trace import to_trace

__all__ = ["SCHEMA", "Kind", "Report", "Sources", "Start", "build", "chosen_starts", "to_html", "to_json", "to_trace"]

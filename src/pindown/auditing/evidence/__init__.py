"""Evidence: what independent fits show on rows they have not seen, and what a plan says before there are any.

Functions of arrays, and of the public methods of a fit; which of them speak for a method, the method says.
"""

from pindown.auditing.evidence.agreement import Agreement, Measure, measure_for
from pindown.auditing.evidence.plans import Count, Plan
from pindown.auditing.evidence.rows import Refits, Rows
from pindown.auditing.evidence.scores import Control, Evidence, Score

__all__ = ["Agreement", "Control", "Count", "Evidence", "Measure", "Plan", "Refits", "Rows", "Score", "measure_for"]

"""Probes of frozen models: what a linear map reads off their features, with chance, control tasks and baselines."""

from pindown.auditing.probing.probe import holm, probe
from pindown.auditing.probing.result import Compared, Probed, Probing

__all__ = ["Compared", "Probed", "Probing", "holm", "probe"]

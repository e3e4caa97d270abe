"""Floor 2: recommends settings from the evidence on a job. Pure: no clock, no network, no store.

* ``thresholds``       the numbers that the rules compare with, and the reason for each
* ``advice``           recommendations with predictions, or reasons for giving none
* ``situation``        the facts of one job that all rules use, computed once
* ``replay``           the recorded checkpoints recomputed under each candidate
* ``checkpoint_mode``  R-UC: aligned or unaligned
* ``mode_evidence``    the rows of evidence for the mode
* ``aligned_timeout``  R-AT: the age at which a checkpoint may become unaligned
* ``in_flight``        R-CAP: how much in-flight data a checkpoint may carry
* ``engine_settings``  names of settings for each engine and version
* ``sentences``        risks, limits and conditions in words
* ``recommending``     applies the rules
* ``lifecycle``        the states of a recommendation after it is given
"""

from backend.advisor.recommending import advise

__all__ = ["advise"]

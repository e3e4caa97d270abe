"""Recommends checkpoint settings from the evidence about a job.

Pure: no clock, no network, no store. Import layer 2 (see README).

* ``thresholds``       the limits that the rules apply, and the reason for each
* ``advice``           the result: recommendations with predictions, or reasons for giving none
* ``situation``        the facts of one job that all rules use, computed once
* ``replay``           the recorded checkpoints recomputed under each candidate setting
* ``checkpoint_mode``  rules R-UC: aligned or unaligned
* ``mode_evidence``    the rows of evidence for advice on the mode
* ``aligned_timeout``  rules R-AT: the age at which an aligned checkpoint becomes unaligned
* ``in_flight``        rules R-CAP: how much in-flight data a checkpoint may persist
* ``spiral``           rule R-REC-1: whether a checkpoint completes between two failures
* ``capacity``         rules R-PAR and R-REC-2: the parallelism of the vertex that limits the job
* ``state``            rules R-ST: incremental checkpoints and a changelog
* ``buffers``          rules R-DB, R-BUF and R-NET: network buffers
* ``intervals``        rules R-INT: the interval, and the pause between checkpoints
* ``failing``          rules R-TO, R-TOL and R-RET: timeout, tolerated failures, retained checkpoints
* ``query_rules``      rules R-MB: the settings of a micro-batched query
* ``proposing``        builds a recommendation of plain settings, and checks the hard bounds
* ``engine_settings``  names of settings for each engine
* ``lints``            settings and versions that are known to cause trouble
* ``sentences``        texts of risks, limits and conditions
* ``recommending``     applies the rules to a job
* ``lifecycle``        the states of a recommendation after it is first made
"""

from backend.advisor.recommending import advise

__all__ = ["advise"]

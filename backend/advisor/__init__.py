"""Floor 2: from what is known of a job to settings worth changing. Pure: no clock, no network, no store.

* ``thresholds``       every number a rule compares with, and why it is that number
* ``advice``           what is said: recommendations with predictions, or reasons for silence
* ``situation``        the facts of one job that the rules share, worked out once
* ``replay``           what each candidate would have done on the recorded checkpoints
* ``checkpoint_mode``  R-UC: aligned or unaligned
* ``mode_evidence``    the rows of evidence behind it
* ``aligned_timeout``  R-AT: from which age on a checkpoint may become unaligned
* ``in_flight``        R-CAP: how much in-flight data a checkpoint may carry
* ``engine_settings``  names of settings by engine and version
* ``sentences``        risks, limits and conditions in words
* ``recommending``     asks the rules
* ``lifecycle``        what becomes of advice once it is given
"""

from backend.advisor.recommending import advise

__all__ = ["advise"]

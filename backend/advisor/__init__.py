"""Recommends checkpoint settings from the evidence about a job.

Pure: no clock, no network, no store. Import layer 2 (see README).

* ``recommending``     applies the rules to a job
* ``choice``           lets the fast simulation choose mode, aligned timeout, cap and interval together
* ``rules``            one topic each: a recommendation, or the reason for none
* ``twin``             a collected job as a model that can be run under changed settings
* ``advice``           the result: recommendations with predictions, or reasons for giving none
* ``situation``        the facts of one job that all rules use, computed once
* ``tier_choice``      the settings that the simulation chose, as the rules read them
* ``replay``           the recorded checkpoints recomputed under each candidate setting
* ``losses``           what checkpoints and failures cost, now and under other settings
* ``proposing``        builds a recommendation of plain settings, and checks the hard bounds
* ``thresholds``       the limits that the rules apply, and the reason for each
* ``sentences``        texts of risks, limits and conditions
* ``engine_settings``  names of settings for each engine
* ``exporting``        changed settings in the forms in which people deploy jobs
* ``lifecycle``        the states of a recommendation after it is first made
"""

from backend.advisor.recommending import advise

__all__ = ["advise"]

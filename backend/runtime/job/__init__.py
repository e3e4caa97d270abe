"""What a job is before it runs.

* ``graph``             vertices, edges, partitioners, and the specifications of stores and faults
* ``config``            the settings: keys, bounds, and which of them may change while the job runs
* ``settings_refused``  why a setting is refused
* ``document``          reads a parsed document field by field and collects all problems
* ``faults``            named failpoints, and the plan of a run
"""

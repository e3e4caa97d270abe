"""The description of a job before it runs.

* ``graph``             vertices, edges, partitioners, and the specifications of stores and faults
* ``config``            the settings: keys, bounds, and which of them may change while the job runs
* ``settings_refused``  explains why a setting is refused
* ``document``          reads a parsed document field by field and collects all problems
* ``faults``            named failpoints, and the faults that a run induces at them
"""

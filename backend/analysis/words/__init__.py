"""How the analysis speaks, and the limits that its sentences name.

* ``sentences``   numbers, subtasks and vertices in words
* ``thresholds``  the limits that the rules apply, and the reason for each
"""

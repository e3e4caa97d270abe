"""Reads logs of Flink's JobManagers and TaskManagers, the form in which trouble reaches a mailing list.

``lines`` parses one line, ``events`` knows the texts of Flink's versions, ``story`` collects what the events show of
each job, ``findings`` puts it into sentences, and ``printing`` prints them.
"""

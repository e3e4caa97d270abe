"""Reads logs of Flink's JobManagers and TaskManagers, the form in which trouble reaches a mailing list.

``blocks`` reads files of any size in blocks and finds the lines that matter, ``lines`` parses one of them, ``events``
knows the texts of Flink's versions, ``story`` collects what the events tell of each job, ``findings`` puts it into
sentences, and ``printing`` prints them.
"""

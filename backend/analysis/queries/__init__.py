"""Spark queries, which have micro-batches and no barriers.

* ``inside_jobs``          what the Spark jobs and stages of batches show
* ``micro_batches``        signs of back-pressure in the micro-batches of a query
* ``series``               which batches are slow and what grows, compared with each other
* ``stored_state``         whether the state grows and is cleaned, and how old its snapshots are
* ``facts``                what the rules know of a query, and what a rule says
* ``causes``               the causes as one ordered list
* ``accumulating``         causes: state that is never cleaned, and batches that take longer and longer
* ``rhythms``              causes: batches that are slow every n-th time
* ``endings``              the known errors with which a query ends
* ``runs``                 the runs of a query together: repeated ends, two active runs
* ``folder_evidence``      what the checkpoint folder of a query adds to the verdict
* ``joining``              one batch as several channels reported it
* ``speaking``             which channel says the state of a run
* ``verdict_ended``        the verdicts on runs that ended
* ``verdict_micro_batch``  whether a query keeps up, and which part takes longest
"""

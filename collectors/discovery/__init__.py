"""Finds targets where the operator's file says, and keeps them in the store.

* ``groups``      the lists of Prometheus' ``file_sd`` and ``http_sd``: from JSON to targets
* ``finding``     the port of a finder, and the two that read such lists
* ``kubernetes``  the finder in Kubernetes, and ``kubernetes_api``, which follows objects there
* ``flink_resources`` and ``spark_resources``  what the resources of the two operators mean
* ``section``     brings what one section finds into the store
* ``watch``       runs the sections of the file, as they change
"""

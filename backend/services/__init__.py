"""The use cases. They read the store, call the analysis and own the transactions. Import layer 4 (see README).

Each folder holds the use cases of one part of the store, under the same name as in ``backend.store``: ``checkpoints``
``jobs`` ``alerts`` ``advice`` ``targets`` ``rollups`` ``pipeline``. ``presenting``, ``paging``, ``micro_batches`` and
``graph_layout`` convert values to the shapes of the API. ``status`` describes the service itself.
"""

"""Floor 4: use cases. They read the store, call the analysis and own the transaction.

A folder per aggregate, named as in ``backend.store``: ``checkpoints`` ``jobs`` ``alerts`` ``advice`` ``targets``
``rollups`` ``pipeline``. ``presenting``, ``paging``, ``micro_batches`` and ``graph_layout`` turn values into the shapes
of the API; ``status`` describes the service itself.
"""

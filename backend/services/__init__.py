"""Floor 4: use cases. They gather what the store holds, ask the analysis, and own the transaction.

A folder per aggregate, named as in ``backend.store``: ``checkpoints`` ``jobs`` ``alerts`` ``advice`` ``targets``
``rollups`` ``pipeline``. ``presenting`` and ``paging`` turn values into the API's shapes; ``status`` is about the
service itself.
"""

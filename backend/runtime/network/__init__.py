"""How records travel from subtask to subtask.

* ``buffers``         the sender: segments, the output pool, one queue for each receiver
* ``emission``        what one subtask writes to all its channels
* ``routes``          which receivers a record goes to
* ``channel``         the receiving side of a channel, and channels within one task manager
* ``remote_channel``  a channel between two task managers, with credit
* ``gate``            the gate: all input channels of one subtask
* ``spans``           buffers of a run that tracks the sizes of records, but does not create their bytes
* ``rescaling``       which old channels a subtask takes over at another parallelism
* ``demultiplexing``  reads several old channels from one new channel
"""

"""The incremental state backends (ST-3, runtime.md 5): how the keyed state of one operator becomes immutable files.

* ``base``       files, the chain of files that a snapshot refers to, and the interface of a backend
* ``changelog``  option I: the recorded changes, and the whole state from time to time
* ``diff``       option II: the difference to the serialized state of the last confirmed checkpoint
* ``sst``        sorted files of changed rows, which are merged
* ``choice``     chooses the backend according to the settings

A backend does no input or output. ``task.increments`` writes the files, and deletes those that are no longer needed.
"""

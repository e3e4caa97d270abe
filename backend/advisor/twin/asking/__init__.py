"""What-ifs: the changes that can be asked for, and how they are read, applied and written.

* ``asking``    reads a what-if from settings as people and engines write them
* ``changes``   the changes that a what-if can make to a model
* ``changing``  applies them
* ``applying``  writes a what-if as changes of the engine's settings
"""

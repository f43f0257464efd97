"""Which operators of a pipeline one kernel computes: legality, benefit, and the search for a partition.

`partition` has the searches, for any graph with values of blocks. `benefit` and `legality` are the model of the thesis,
`cost` is a model of the time of groups on a GPU, and `planning` makes plans and the lowering ``fused``.
"""

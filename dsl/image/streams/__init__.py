"""Plans of how the launches of a pipeline run: what must wait for what, which buffers share memory, and how many
launches run at a time.

`dependences` has the graph of launches, `memory` lets buffers share memory, `model` estimates the time in one stream
and in several, `planning` chooses, and `running` runs a plan on a backend; `cuda_graph` makes a CUDA graph of it.
"""

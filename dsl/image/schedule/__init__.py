"""Schedules by models: what a group costs, and which groups, tiles, blocks and registers a pipeline gets.

A schedule is a `groups.Plan`. `work` counts what the kernel of a group does, `costs` has two cost functions of it,
`dynamic` and `greedy` are two searches, and `auto` takes the better result. `tuning` chooses by time.
"""

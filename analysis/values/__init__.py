"""What registers hold: SSA form, value numbers, affine forms, ranges, liveness."""

"""The transforms, which change a kernel in place, and the pipeline that runs them."""

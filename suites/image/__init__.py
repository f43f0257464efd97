"""Image filters and reductions, written as pipelines of `dsl.image`. docs/images.md describes pipelines."""

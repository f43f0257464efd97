"""Traversals of trees as in the Treelogy suite (Hegde et al., ISPASS 2017), written from scratch."""

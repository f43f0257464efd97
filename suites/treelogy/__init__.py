"""Programs after the Treelogy suite (Hegde et al., ISPASS 2017): traversals of trees, written anew."""

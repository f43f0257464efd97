"""Programs after the Rodinia suite (Che et al., IISWC 2009): same algorithms and kernel structure, written anew."""

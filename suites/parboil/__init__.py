"""Programs after Parboil (Stratton et al., IMPACT-12-01): same algorithms and kernel structure, written anew."""

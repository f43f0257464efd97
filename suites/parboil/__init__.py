"""Programs with the algorithms and the kernel structure of Parboil (Stratton et al., IMPACT-12-01), written from
scratch.
"""

"""Programs with the algorithms and the kernel structure of Rodinia (Che et al., IISWC 2009), written from scratch."""

"""Code motion: lazy, sparse and speculative (LCM, SCM, SPRE, SSCM)."""

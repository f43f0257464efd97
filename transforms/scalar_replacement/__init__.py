"""Scalar replacement by question propagation (SRQP, ESRQP, SSRQP)."""

"""Passes that let different blocks of a grid run different code."""

"""Passes that split the blocks of a grid by what they have to do."""

"""What memory instructions touch: aliasing, effects, which loads cannot fault."""

"""Programs that are not rebuilt: their PTX is optimized when they load it."""

"""Properties of the codecs, over generated input."""

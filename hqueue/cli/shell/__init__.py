"""The interactive shell: seed 001's toolkit."""

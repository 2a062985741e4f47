"""The interactive shell: the toolkit shell of Alibaba's HQueue."""

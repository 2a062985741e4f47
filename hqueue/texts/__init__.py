"""Writes messages, times and questions for people, in the command line and in the console."""

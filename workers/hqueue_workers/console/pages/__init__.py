"""The console's pages, a module for each subject."""

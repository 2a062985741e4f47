"""What tests of several folders share. Nothing in it is a test."""

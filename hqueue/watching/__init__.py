"""What watches producers, consumers and subscribers: metrics and traces, if a program asks for
them.
"""

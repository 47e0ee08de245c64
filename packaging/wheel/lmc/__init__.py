"""lmc as a Python package: the programs in bin/, which the commands of the same names start.

The programs know by this file that pip has installed them (ground/support/Places.h), and look for the
libraries of other packages where pip puts these.
"""

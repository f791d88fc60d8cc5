//! Writes the `proc`, `sys` and control group files of a node that is not at hand, for tests.

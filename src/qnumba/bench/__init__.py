"""The benchmark: every operation beside a loop of the same traffic, and beside other libraries."""

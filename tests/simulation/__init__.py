"""Thousands of seeded schedules of the real engine: lanes, crashes, faults, replies and operators on the virtual clock.

A play is one seed: some accounts, each with a schedule of its own, that share processes which die at any await.
"""

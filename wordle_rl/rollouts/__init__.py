"""Kinds of rollouts (`rollout=`): how the policy plays the secrets of a step.

A kind is a file with a subclass of RolloutKind (base.py), which decides what a group is. The groups
of a step's secret p have the numbers p, p + groups, p + 2 groups and so on. Processes share the
secrets, so a group never spans two processes.
"""

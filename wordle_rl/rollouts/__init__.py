"""Kinds of rollouts (`rollout=`): how the policy meets the secrets of a step.

A kind is a file with a subclass of RolloutKind (task.py): it decides what a group is, and leaves
the rest of the step to others. The groups of a step's secret p have the numbers p, p + groups,
p + 2 groups, ...: processes share out the secrets, so a group never spans two of them.
"""

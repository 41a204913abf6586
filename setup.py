"""Puts conf/ into the wheel, inside the package: its files are wordle_rl/conf/ once installed."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[*find_namespace_packages(include=["wordle_rl*", "hydra_plugins*"]), "wordle_rl.conf"],
    package_dir={"wordle_rl.conf": "conf"},
)

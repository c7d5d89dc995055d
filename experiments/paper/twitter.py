"""Placeholder."""

from experiments.paper.section import Section

NAME = "twitter"


def make(current):
    return Section(NAME, "Twitter", "", skipped="no file")

"""What a target, a head and a score are: classification, segmentation. Generic code asks the problem, by no name."""

from surgeon.problems.base import Problem
from surgeon.problems.classification import CLASSIFICATION
from surgeon.problems.finding import PROBLEMS, problem_of
from surgeon.problems.segmentation import SEGMENTATION

__all__ = ["CLASSIFICATION", "PROBLEMS", "SEGMENTATION", "Problem", "problem_of"]

"""What commands find out, as typed records: tables, JSON, pictures and pages render from them and nothing else.

A record holds figures and names; sentences about them are written in `report`.
"""

from surgeon.results.affinity import Affinity, AugmentAffinity
from surgeon.results.base import Gain, Result
from surgeon.results.ensemble import Choice, Combination, Ensemble, Member, Restatement, Step
from surgeon.results.evaluation import (
    AgainstOneView,
    Breakdown,
    ClassFigures,
    ConfidenceBin,
    Confusion,
    Evaluation,
    MaskBreakdown,
    MaskClass,
    Mistake,
)
from surgeon.results.outputs import Export, Merging, Target
from surgeon.results.prediction import ClassProbability, ClassShare, PredictedImage, PredictedMask, Prediction
from surgeon.results.recalibration import Answers, Change, Recalibration
from surgeon.results.robustness import (
    AttackCheck,
    ConditionFigures,
    CorruptionFigures,
    Difference,
    Figure,
    NetworkRobustness,
    Robustness,
)
from surgeon.results.shift import DataShift
from surgeon.results.study import (
    Bounds,
    PlannedRun,
    RunState,
    SeedValue,
    Study,
    StudyDifference,
    StudyPlan,
    StudyRow,
    StudyRun,
    StudyVariability,
)
from surgeon.results.sweep import Interpolation, Learned, Learning, Method, Point, Setting, Spent, Sweep
from surgeon.results.training import Epoch, FineTuning, Measured

__all__ = [
    "Affinity",
    "AgainstOneView",
    "Answers",
    "AttackCheck",
    "AugmentAffinity",
    "Bounds",
    "Breakdown",
    "Change",
    "Choice",
    "ClassFigures",
    "ClassProbability",
    "ClassShare",
    "Combination",
    "ConditionFigures",
    "ConfidenceBin",
    "Confusion",
    "CorruptionFigures",
    "DataShift",
    "Difference",
    "Ensemble",
    "Epoch",
    "Evaluation",
    "Export",
    "Figure",
    "FineTuning",
    "Gain",
    "Interpolation",
    "Learned",
    "Learning",
    "MaskBreakdown",
    "MaskClass",
    "Measured",
    "Member",
    "Merging",
    "Method",
    "Mistake",
    "NetworkRobustness",
    "PlannedRun",
    "Point",
    "PredictedImage",
    "PredictedMask",
    "Prediction",
    "Recalibration",
    "Restatement",
    "Result",
    "Robustness",
    "RunState",
    "SeedValue",
    "Setting",
    "Spent",
    "Step",
    "Study",
    "StudyDifference",
    "StudyPlan",
    "StudyRow",
    "StudyRun",
    "StudyVariability",
    "Sweep",
    "Target",
]

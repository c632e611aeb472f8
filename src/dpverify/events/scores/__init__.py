"""Scores: one number per run, large where the first data set is more likely (docs/method.md, section 5.3).

To add a kind, write one file and add the kind to the lists below.
"""

from dpverify.events.scores.additive import Additive, additive_learners
from dpverify.events.scores.base import Features, Levels, Linear, Score, evaluate_scores
from dpverify.events.scores.cell_score import CellScore
from dpverify.events.scores.interactions import Interaction, interaction_learners
from dpverify.events.scores.moments import Banded, Quadratic, covariance_learners, gaussian_learners
from dpverify.events.scores.outliers import Extreme, outlier_learners
from dpverify.events.scores.patterned import Patterned, pattern_learners
from dpverify.events.scores.piecewise import Piecewise, piecewise_learners
from dpverify.events.scores.shared import Shared, shared_learners
from dpverify.events.scores.training import Learner, LearnerCost, ScoreFamily, TrainingData, summarise
from dpverify.events.scores.transformed import Transformed, transformed_learners
from dpverify.events.scores.user_score import UserScore

# Every kind that a report can hold.
SCORE_KINDS = (
    *(Linear, Quadratic, Additive, Piecewise, Patterned, CellScore, UserScore),
    *(Banded, Shared, Transformed, Interaction, Extreme),
)

# What competes during selection, in this order. A learner is used if its cost is within the budget of the search.
SCORE_FAMILIES = (
    ScoreFamily(gaussian_learners, LearnerCost.CHEAP),
    ScoreFamily(additive_learners, LearnerCost.CHEAP),
    ScoreFamily(outlier_learners, LearnerCost.PATTERNS),
    ScoreFamily(piecewise_learners, LearnerCost.JOINT_FIT),
    ScoreFamily(pattern_learners, LearnerCost.PATTERNS),
    ScoreFamily(covariance_learners, LearnerCost.STRUCTURED),
    ScoreFamily(shared_learners, LearnerCost.STRUCTURED),
    ScoreFamily(transformed_learners, LearnerCost.STRUCTURED),
    ScoreFamily(interaction_learners, LearnerCost.STRUCTURED),
)

__all__ = [
    "SCORE_FAMILIES",
    "SCORE_KINDS",
    "Additive",
    "Banded",
    "CellScore",
    "Extreme",
    "Features",
    "Interaction",
    "Learner",
    "LearnerCost",
    "Levels",
    "Linear",
    "Patterned",
    "Piecewise",
    "Quadratic",
    "Score",
    "ScoreFamily",
    "Shared",
    "TrainingData",
    "Transformed",
    "UserScore",
    "evaluate_scores",
    "summarise",
]

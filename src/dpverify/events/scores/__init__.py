"""Scores: one number per run, large where the first dataset is more likely (docs/method.md, section 5.3).

To add a kind, write one file and add the kind to the lists below.
"""

from dpverify.events.scores.additive import Additive, additive_learners
from dpverify.events.scores.base import Features, Levels, Linear, Score, evaluate_scores
from dpverify.events.scores.cell_score import CellScore
from dpverify.events.scores.general import General, fit_general
from dpverify.events.scores.interactions import Interaction, interaction_learners
from dpverify.events.scores.moments import Banded, Quadratic, covariance_learners, gaussian_learners
from dpverify.events.scores.outliers import Extreme, outlier_learners
from dpverify.events.scores.patterned import Patterned, pattern_learners
from dpverify.events.scores.shared import Shared, shared_learners
from dpverify.events.scores.training import Learner, ScoreFamily, TrainingData, summarise
from dpverify.events.scores.transformed import Transformed, transformed_learners
from dpverify.events.scores.user_score import UserScore

# Every kind that a report can hold.
SCORE_KINDS = (
    *(Linear, Quadratic, Additive, Patterned, CellScore, UserScore),
    *(Banded, Shared, Transformed, Interaction, Extreme, General),
)

# What competes during selection. A family returns learners for given training data.
SIMPLE_FAMILIES = (gaussian_learners, additive_learners)
USUAL_FAMILIES = (*SIMPLE_FAMILIES, outlier_learners, pattern_learners)
# Most outputs have none of these structures, so that held-out runs decide whether their scores compete.
STRUCTURED_FAMILIES = (covariance_learners, shared_learners, transformed_learners, interaction_learners)

__all__ = [
    "SCORE_KINDS",
    "SIMPLE_FAMILIES",
    "STRUCTURED_FAMILIES",
    "USUAL_FAMILIES",
    "Additive",
    "Banded",
    "CellScore",
    "Extreme",
    "Features",
    "General",
    "Interaction",
    "Learner",
    "Levels",
    "Linear",
    "Patterned",
    "Quadratic",
    "Score",
    "ScoreFamily",
    "Shared",
    "TrainingData",
    "Transformed",
    "UserScore",
    "evaluate_scores",
    "fit_general",
    "summarise",
]

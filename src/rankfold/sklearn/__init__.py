"""scikit-learn estimators: ``Recommender``, ``Labeler`` and ``OrdinalGrader``.

    from rankfold.sklearn import OrdinalGrader

    cross_val_score(OrdinalGrader("cba", fpr=0.05), X, y)

They convert inputs and call ``prepare``, ``fit`` and the model; they have no logic of their own.
They need the extra ``sklearn``.
"""

from importlib.util import find_spec

from rankfold.errors import UserError

if find_spec("sklearn") is None:
    raise UserError(
        "the estimators need scikit-learn, which is not installed",
        hint="pip install 'rankfold[sklearn]'",
    )

from rankfold.sklearn.grader import OrdinalGrader as OrdinalGrader
from rankfold.sklearn.labeler import Labeler as Labeler
from rankfold.sklearn.recommender import Recommender as Recommender

"""Every shared type. Read this package first.

Words: a *query* asks, a *candidate* is what it may get, a *grade* says how positive a pair of the
two is (0 = not), a *split* is train, validation or test, a *pool* is the candidates a query is
compared with in one step.

Shapes: M queries, N candidates, B queries in a batch, C candidates in a pool, D width, K results.

This package and everything that trains imports only torch and numpy when it is loaded.
"""

from rankfold.types.data import (
    GIVEN,
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    Columns,
    Dataset,
    Features,
    Graded,
    Interactions,
    Kind,
    Progress,
    Side,
    SplitName,
    Texts,
    from_pairs,
    silent,
    to_tensors,
)
from rankfold.types.methods import (
    Allow,
    Batch,
    Comm,
    Drawn,
    Encoder,
    Exclude,
    FullLoss,
    Index,
    Judge,
    Loss,
    Method,
    Model,
    Opened,
    OwnRows,
    Picks,
    Pool,
    Run,
    Sampler,
    Step,
    TopK,
)
from rankfold.types.spaces import Choices, Range, Space
from rankfold.types.vocabulary import Key, Vocabulary

__all__ = [
    "GIVEN",
    "SPLITS",
    "TEST",
    "TRAIN",
    "VALIDATION",
    "Allow",
    "Batch",
    "Choices",
    "Columns",
    "Comm",
    "Dataset",
    "Drawn",
    "Encoder",
    "Exclude",
    "Features",
    "FullLoss",
    "Graded",
    "Index",
    "Interactions",
    "Judge",
    "Key",
    "Kind",
    "Loss",
    "Method",
    "Model",
    "Opened",
    "OwnRows",
    "Picks",
    "Pool",
    "Progress",
    "Range",
    "Run",
    "Sampler",
    "Side",
    "Space",
    "SplitName",
    "Step",
    "Texts",
    "TopK",
    "Vocabulary",
    "from_pairs",
    "silent",
    "to_tensors",
]

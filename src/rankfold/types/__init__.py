"""Every shared type. Read this package first.

Words: candidates are ranked for a *query*, a *grade* says how positive a pair of the two is (0 =
not), a *split* is train, validation or test, a *pool* is the candidates a query is compared with in
one step.

Shapes: M queries, N candidates, B queries in a batch, C candidates in a pool, D width, K results.

This package and everything that trains imports only torch and numpy when it is loaded.
"""

from rankfold.types.data import GIVEN as GIVEN
from rankfold.types.data import SPLITS as SPLITS
from rankfold.types.data import TEST as TEST
from rankfold.types.data import TRAIN as TRAIN
from rankfold.types.data import VALIDATION as VALIDATION
from rankfold.types.data import Columns as Columns
from rankfold.types.data import Dataset as Dataset
from rankfold.types.data import Features as Features
from rankfold.types.data import Graded as Graded
from rankfold.types.data import Interactions as Interactions
from rankfold.types.data import Kind as Kind
from rankfold.types.data import Progress as Progress
from rankfold.types.data import Sequences as Sequences
from rankfold.types.data import Side as Side
from rankfold.types.data import SplitName as SplitName
from rankfold.types.data import Texts as Texts
from rankfold.types.data import from_pairs as from_pairs
from rankfold.types.data import offsets_of as offsets_of
from rankfold.types.data import to_tensors as to_tensors
from rankfold.types.methods import Allow as Allow
from rankfold.types.methods import Batch as Batch
from rankfold.types.methods import Comm as Comm
from rankfold.types.methods import Drawn as Drawn
from rankfold.types.methods import Encoder as Encoder
from rankfold.types.methods import Exclude as Exclude
from rankfold.types.methods import FullLoss as FullLoss
from rankfold.types.methods import Index as Index
from rankfold.types.methods import Input as Input
from rankfold.types.methods import Judge as Judge
from rankfold.types.methods import Loss as Loss
from rankfold.types.methods import Method as Method
from rankfold.types.methods import Model as Model
from rankfold.types.methods import Opened as Opened
from rankfold.types.methods import OwnRows as OwnRows
from rankfold.types.methods import Picks as Picks
from rankfold.types.methods import Pool as Pool
from rankfold.types.methods import Run as Run
from rankfold.types.methods import Sampler as Sampler
from rankfold.types.methods import Start as Start
from rankfold.types.methods import Step as Step
from rankfold.types.methods import TopK as TopK
from rankfold.types.methods import history_tensors as history_tensors
from rankfold.types.methods import kept_histories as kept_histories
from rankfold.types.methods import list_tensors as list_tensors
from rankfold.types.methods import list_with as list_with
from rankfold.types.spaces import Choices as Choices
from rankfold.types.spaces import Range as Range
from rankfold.types.spaces import Space as Space
from rankfold.types.tabular import Tabular as Tabular
from rankfold.types.vocabulary import Key as Key
from rankfold.types.vocabulary import Vocabulary as Vocabulary

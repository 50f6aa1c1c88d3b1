"""Folders on disk: models, prepared data and checkpoints.

``manifest.json`` names every other file with its size and sha256. It is replaced last and
atomically, so a reader sees the old folder or the new one, never a mixture. The name of a data file
contains its hash, and the file never changes. Files that the manifest no longer names stay until
the next write, for readers that still hold the old manifest.
"""

from rankfold.storage.destination import check_destination as check_destination
from rankfold.storage.destination import check_writable as check_writable
from rankfold.storage.destination import locked as locked
from rankfold.storage.destination import sweep as sweep
from rankfold.storage.manifest import MANIFEST as MANIFEST
from rankfold.storage.manifest import Content as Content
from rankfold.storage.manifest import ForeignFile as ForeignFile
from rankfold.storage.manifest import damaged as damaged
from rankfold.storage.manifest import versions as versions
from rankfold.storage.private import PrivateFile as PrivateFile
from rankfold.storage.private import read_copy as read_copy
from rankfold.storage.reader import Folder as Folder
from rankfold.storage.reader import check_contents as check_contents
from rankfold.storage.reader import read as read
from rankfold.storage.writer import to_json as to_json
from rankfold.storage.writer import write as write
from rankfold.storage.writer import write_text as write_text

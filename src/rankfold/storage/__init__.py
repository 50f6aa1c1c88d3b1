"""Folders on disk: models, prepared data and checkpoints.

``manifest.json`` names every other file with its size and sha256. It is replaced last and
atomically, so a reader sees the old folder or the new one, never a mixture. The name of a data file
contains its hash, and the file never changes. Files that the manifest no longer names stay until
the next write, for readers that still hold the old manifest.
"""

from rankfold.storage.available_memory import free_memory as free_memory
from rankfold.storage.destination import OtherKindError as OtherKindError
from rankfold.storage.destination import as_path as as_path
from rankfold.storage.destination import check_destination as check_destination
from rankfold.storage.destination import check_named as check_named
from rankfold.storage.destination import check_writable as check_writable
from rankfold.storage.destination import foreign as foreign
from rankfold.storage.destination import leftovers as leftovers
from rankfold.storage.destination import sweep as sweep
from rankfold.storage.disk import Put as Put
from rankfold.storage.disk import beside as beside
from rankfold.storage.disk import check_encodable as check_encodable
from rankfold.storage.disk import filling as filling
from rankfold.storage.disk import flush as flush
from rankfold.storage.disk import free_bytes as free_bytes
from rankfold.storage.disk import is_full as is_full
from rankfold.storage.disk import locked as locked
from rankfold.storage.disk import new_file as new_file
from rankfold.storage.disk import os_error as os_error
from rankfold.storage.disk import replacing as replacing
from rankfold.storage.disk import scratch as scratch
from rankfold.storage.disk import write_errors as write_errors
from rankfold.storage.manifest import CARD as CARD
from rankfold.storage.manifest import CARD_MARK as CARD_MARK
from rankfold.storage.manifest import MANIFEST as MANIFEST
from rankfold.storage.manifest import Content as Content
from rankfold.storage.manifest import ForeignFile as ForeignFile
from rankfold.storage.manifest import damaged as damaged
from rankfold.storage.manifest import versions as versions
from rankfold.storage.private_copy import PrivateFile as PrivateFile
from rankfold.storage.private_copy import read_copy as read_copy
from rankfold.storage.reader import Folder as Folder
from rankfold.storage.reader import check_contents as check_contents
from rankfold.storage.reader import read as read
from rankfold.storage.writer import to_json as to_json
from rankfold.storage.writer import write as write
from rankfold.storage.writer import write_text as write_text

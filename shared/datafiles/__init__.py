"""Data files of a spec's uri, only under the operator's data roots, and fingerprints of their changes.

Stages and stage reuse resolve a uri by the same rules, on disk (`local`) and in object stores (`objects`).
"""

from shared.datafiles.kinds import Kind, kind_of
from shared.datafiles.local import data_files
from shared.datafiles.objects import data_objects
from shared.datafiles.places import DataFiles
from shared.domain.object_uris import is_object

__all__ = ["DataFiles", "Kind", "data_files", "data_objects", "is_object", "kind_of"]

"""The bytes of an entry: format and codec."""

from rewarm.envelope.codec import CODECS, compress, decompress
from rewarm.envelope.format import ENVELOPE_VERSION, Entry, Header, Section, open_entry, read_header, seal

__all__ = [
    "CODECS",
    "ENVELOPE_VERSION",
    "Entry",
    "Header",
    "Section",
    "compress",
    "decompress",
    "open_entry",
    "read_header",
    "seal",
]

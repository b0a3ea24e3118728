"""The bytes of an entry: format and codec."""

from rewarm.envelope.codec import CODECS, compress, decompress
from rewarm.envelope.format import ENVELOPE_VERSION, Entry, Header, Section, content_of, open_entry, read_header, seal

__all__ = [
    "CODECS",
    "ENVELOPE_VERSION",
    "Entry",
    "Header",
    "Section",
    "compress",
    "content_of",
    "decompress",
    "open_entry",
    "read_header",
    "seal",
]

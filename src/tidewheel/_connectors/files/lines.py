"""The lines of a part of a text file, in blocks.

A line ends with a line feed, or a carriage return and a line feed, or with the file. It belongs to the part of the file in which
it begins, so that the parts of a file have each of its lines once, wherever the file is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidewheel._connectors.files.input_file import InputFile
from tidewheel.errors import StepError

BLOCK = 4 * 1024 * 1024
_LINE_FEED = 10
_BOM = b"\xef\xbb\xbf"
_FIRST_LINE = 64 * 1024
_LONGEST = 1 << 30


class Block(NamedTuple):
    """Whole lines of a file, each with its end; the last line of the file may have none."""

    line: int
    """How many lines of the part are before these."""
    text: bytes

    def lines(self) -> list[bytes]:
        """Return the lines without their ends."""
        lines = self.text.split(b"\n")
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix(b"\r") for line in lines]

    def in_chunks(self, lines: int) -> Iterator[Block]:
        """Yield the same lines in blocks of at most so many."""
        text = self.text
        at = number = begin = count = 0
        while at < len(text):
            at = text.find(b"\n", at) + 1 or len(text)
            count += 1
            if count == lines or at == len(text):
                yield Block(self.line + number, text[begin:at])
                begin, number, count = at, number + count, 0


class Part(NamedTuple):
    """The lines of a file that begin between two of its bytes; an end of None is that of the file."""

    file: InputFile
    start: int = 0
    end: int | None = None

    def blocks(self, block_bytes: int = BLOCK) -> Iterator[Block]:
        """Yield all lines, in order, without a byte-order mark at the beginning of the file."""
        line = 0
        with self.file.opened("text", decompress=True) as stream:
            stop = None if self.end is None else _line_start(stream, self.end)
            first = _line_start(stream, self.start)
            if self.start or self.end is not None:
                stream.seek(first)
            for text in self._whole_lines(stream, first, stop, max(block_bytes, len(_BOM))):
                yield Block(line, text)
                # Counted in this way in a third of the time of `bytes.count`.
                line += int(np.count_nonzero(np.frombuffer(text, np.uint8) == _LINE_FEED))

    def _whole_lines(self, stream: pa.NativeFile, at: int, stop: int | None, block_bytes: int) -> Iterator[bytes]:
        pieces: list[bytes] = []
        held = 0
        while (stop is None or at < stop) and (
            data := stream.read(block_bytes if stop is None else min(block_bytes, stop - at))
        ):
            text = data.removeprefix(_BOM) if at == 0 else data
            at += len(data)
            end = text.rfind(b"\n") + 1
            if end:
                yield b"".join((*pieces, text[:end])) if pieces else text[:end]
                pieces, held = [], 0
            if end < len(text):
                pieces.append(text[end:])
                held += len(text) - end
                if held > _LONGEST:
                    raise StepError(
                        f"{self.file.shown} has a line of more than {_LONGEST >> 20} MiB, which is too long for a record"
                    )
        if pieces:
            yield b"".join(pieces)

    def lines_before(self) -> int:
        """Return how many lines of the file are before the part. The file is read for that: this is for errors."""
        if self.start == 0:
            return 0
        count = 0
        with self.file.opened("text") as stream:
            left = _line_start(stream, self.start)
            stream.seek(0)
            while left and (data := stream.read(min(BLOCK, left))):
                count += data.count(b"\n")
                left -= len(data)
        return count

    def first_line(self) -> bytes:
        """Return the first line of the file, wherever the part is."""
        block = next(Part(self.file).blocks(_FIRST_LINE), None)
        return b"" if block is None else block.text.partition(b"\n")[0].removesuffix(b"\r")


def is_utf8(text: bytes) -> bool:
    """Return whether bytes are UTF-8 text."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _line_start(stream: pa.NativeFile, at: int) -> int:
    """Return where the first line begins that begins at a byte or behind it; the size of the file if none does."""
    if at == 0:
        return 0
    stream.seek(at - 1)
    found = at - 1
    while data := stream.read(_FIRST_LINE):
        end = data.find(b"\n") + 1
        if end:
            return found + int(end)
        found += len(data)
    return found

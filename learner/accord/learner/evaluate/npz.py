"""Reading an npz that somebody else wrote: bounded sizes, no pickles, one clear error whatever the bytes are."""

from __future__ import annotations

import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidValue, Reason

MAX_FILE_BYTES = 256 << 20
MAX_ARRAY_BYTES = 256 << 20
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)
"""What zipfile raises for truncated, corrupt, encrypted or unknown content."""
_HEADER_DAMAGE = (ValueError, TypeError, SyntaxError, KeyError, OverflowError, tokenize.TokenError, RecursionError)
"""What NumPy's header parser raises for a header that is not one."""


def read_arrays(file: IO[bytes], required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """The named arrays of an npz; arrays with other names are ignored and never read.

    Args:
        file: open for reading, seekable.
        required, optional: names without `.npy`.

    Raises:
        InvalidValue: when a required array is missing, or anything cannot be read within the size limits
            (256 MiB for the file and for each array).
    """
    label = str(getattr(file, "name", "stream"))
    size = file.seek(0, 2)
    if size > MAX_FILE_BYTES:
        raise InvalidValue("trace", label, f"has {size} bytes; at most {MAX_FILE_BYTES}", Reason.SIZE)
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive:
            members = set(archive.namelist())
            for name in required:
                if f"{name}.npy" not in members:
                    raise InvalidValue(name, None, "the array is missing from the trace", Reason.SHAPE)
            wanted = [*required, *(name for name in optional if f"{name}.npy" in members)]
            return {name: _read_member(archive, name) for name in wanted}
    except InvalidValue:
        raise
    except (*_DAMAGE, ValueError, UnicodeError) as error:
        raise InvalidValue("trace", label, f"is not a readable npz file ({_first_line(error)})") from None


def _read_member(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    info = archive.getinfo(f"{name}.npy")
    if info.file_size > MAX_ARRAY_BYTES:
        raise InvalidValue(name, f"{info.file_size} bytes", f"at most {MAX_ARRAY_BYTES} bytes", Reason.SIZE)
    try:
        with archive.open(info) as stream:
            shape, fortran, dtype = _read_header(stream)
            size = math.prod(shape) * dtype.itemsize
            if dtype.hasobject or dtype.itemsize == 0:
                raise InvalidValue(name, str(dtype), "must hold numbers or text")
            # checked against the size that the archive claims, before anything of it is allocated
            if any(n < 0 for n in shape) or size > info.file_size:
                raise InvalidValue(name, shape, "the header claims more than the file holds", Reason.SIZE)
            data = stream.read(size)
            if len(data) != size:
                raise InvalidValue(name, f"{len(data)} bytes", f"shape {shape} needs {size}", Reason.SIZE)
            return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")
    except InvalidValue:
        raise
    except (*_DAMAGE, *_HEADER_DAMAGE) as error:
        raise InvalidValue(name, None, f"is not a readable NumPy array ({_first_line(error)})") from None


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    with warnings.catch_warnings():
        # a crafted header may carry a deprecated dtype spelling; it is refused or read, never warned about
        warnings.simplefilter("ignore")
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        if version == (2, 0):
            return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"format version {version}")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

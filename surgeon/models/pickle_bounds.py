"""What a pickle would cost to read, found without reading it: its opcodes are counted, and nothing is built.

The restricted unpickler of PyTorch runs no code, but a few hundred bytes can keep it busy for years: tuples
of tuples that refer to each other are hashed in time that doubles with each level, and keys can be chosen
so that all have the same hash. Some of what it does call makes gigabytes of one number, or encodes a text in
time that grows with the square of its length.
"""

from __future__ import annotations

import pickletools
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from dataclasses import dataclass, field
from typing import IO, Any

MOST_OPERATIONS = 5_000_000
MOST_TUPLE_ENTRIES = 20_000_000
LARGEST_TUPLE = 100_000
DEEPEST_TUPLE = 50
MOST_HASHED_TUPLES = 1_000
MOST_CALLS = 200_000
MOST_LARGE_INTEGERS = 100
"""Integers of more than 64 bits: the first of PyTorch's old format is one, and thousands share each hash."""

_GETS = ("BINGET", "LONG_BINGET", "GET")
_PUTS = ("BINPUT", "LONG_BINPUT", "PUT")
_TUPLES = ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_TUPLE")
_CALLS = ("REDUCE", "NEWOBJ", "NEWOBJ_EX")
_KEEPING = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD")
_HASHING = ("builtins.set", "collections.Counter")
_ENCODING = "_codecs.encode"
_CALLING, _REBUILDING = "torch._tensor._rebuild_from_type_v2", "torch._utils._rebuild_"
_LONGEST_WORD, _FIRST = 100, 3
_OF_BYTES = "latin1"
"""How the second protocol of pickle, which is PyTorch's, writes bytes; it knows no other encoding."""


class CostlyPickleError(Exception):
    """A pickle that takes more time or memory than any weights do."""


@dataclass(frozen=True)
class _Item:
    """How many entries a value has with those of all tuples in it, and how deep they go; 1 and 0 if it is no tuple.

    The words are the full name of what can be called, a short text, or those of a tuple's first entries.
    """

    entries: int = 1
    depth: int = 0
    words: tuple[str, ...] = ()


_OTHER, _MARK = _Item(), _Item()


@dataclass
class _Reader:
    """The unpickler's stack, with sizes in place of values."""

    stack: list[_Item] = field(default_factory=list)
    memo: dict[int, _Item] = field(default_factory=dict)
    operations: int = 0
    calls: int = 0
    entries: int = 0
    keys: int = 0
    listed: int = 0
    large_integers: int = 0
    hashes: bool = False

    def take(self, opcode: Any, argument: Any) -> None:
        self.operations += 1
        name = opcode.name
        if name in _PUTS or name == "MEMOIZE":
            self.memo[len(self.memo) if name == "MEMOIZE" else int(argument)] = self.stack[-1]
        elif name in _GETS:
            self._push(self.memo[int(argument)])
        elif name == "MARK":
            self.stack.append(_MARK)
        elif name == "DUP":
            self._push(self.stack[-1])
        else:
            taken = self._pop(opcode)
            self._note(name, argument, taken)
            for _ in opcode.stack_after:
                self._push(_made(name, argument, taken))
        self._check()

    def _pop(self, opcode: Any) -> list[_Item]:
        """What an opcode takes from the stack, without the mark."""
        needs = opcode.stack_before
        if pickletools.markobject not in needs:
            start = len(self.stack) - len(needs)
            if start < 0:
                raise ValueError("the stack is empty")
            taken = self.stack[start:]
            del self.stack[start:]
            return taken
        mark = len(self.stack) - 1
        while self.stack[mark] is not _MARK:  # IndexError where there is none
            mark -= 1
        start = mark - needs.index(pickletools.markobject)
        taken = [item for item in self.stack[start:] if item is not _MARK]
        del self.stack[start:]
        return taken

    def _push(self, item: _Item) -> None:
        self.entries += item.entries if item.depth else 0
        self.stack.append(item)

    def _note(self, name: str, argument: Any, taken: list[_Item]) -> None:
        if name in ("SETITEM", "SETITEMS"):
            self.keys += sum(item.depth > 0 for item in taken[1::2])
        elif name in ("APPEND", "APPENDS", "LIST", "ADDITEMS", "FROZENSET"):
            self.listed += sum(item.depth > 0 for item in taken)
        elif name in _CALLS:
            self.calls += 1
            if _is_costly(taken):
                raise CostlyPickleError
        elif isinstance(argument, int) and argument.bit_length() > 63:
            self.large_integers += 1
        self.hashes |= name == "GLOBAL" and _full_name(argument) in _HASHING

    def _check(self) -> None:
        top = self.stack[-1] if self.stack else _OTHER
        if (
            self.operations > MOST_OPERATIONS
            or self.calls > MOST_CALLS
            or self.entries > MOST_TUPLE_ENTRIES
            or top.entries > LARGEST_TUPLE
            or top.depth > DEEPEST_TUPLE
            or self.keys + (self.listed if self.hashes else 0) > MOST_HASHED_TUPLES
            or self.large_integers > MOST_LARGE_INTEGERS
        ):
            raise CostlyPickleError


def _is_costly(called: list[_Item]) -> bool:
    """Whether a call makes something of a size that is only a number, or encodes a text otherwise than as bytes."""
    function, arguments = "".join(called[0].words), called[-1].words
    if function == _ENCODING:
        return arguments[1:] != (_OF_BYTES,)
    if function == _CALLING:
        return not (arguments and arguments[0].startswith(_REBUILDING))
    return function == "builtins.bytearray" or function.endswith(("Storage", "Tensor"))


def _full_name(argument: str) -> str:
    """What a pickle names, by the name that it has in Python 3, as PyTorch looks it up."""
    module, _, name = argument.partition(" ")
    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    return f"{module}.{name}"


def _made(name: str, argument: Any, taken: list[_Item]) -> _Item:
    """What an opcode puts on the stack; a call may give back the tuple that it is given, as torch.Size does."""
    if name == "GLOBAL":
        return _Item(words=(_full_name(argument),))
    if isinstance(argument, str) and len(argument) < _LONGEST_WORD:
        return _Item(words=(argument,))
    if name in _KEEPING:  # whatever it is: nothing is looked at where nothing is added
        return taken[0]
    if name not in _TUPLES and name not in _CALLS:
        return _OTHER
    deeper = 1 if name in _TUPLES else 0
    entries = 1 + sum(item.entries for item in taken)
    words = tuple(item.words[0] if len(item.words) == 1 else "" for item in taken[:_FIRST]) if deeper else ()
    return _Item(entries, deeper + max((item.depth for item in taken), default=0), words)


def check_pickle(stream: IO[bytes]) -> None:
    """Read a stream up to the end of a pickle: CostlyPickleError if it would be a bomb, ValueError if it is torn."""
    reader = _Reader()
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            reader.take(opcode, argument)
    except (IndexError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"not a pickle: {error}") from None

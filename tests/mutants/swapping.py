"""Puts a mutant into this process, and into nothing else: the checkout is never written to.

The changed module is executed beside the real one, and what differs is carried over: the code of functions into the
functions that everybody already has, constants to wherever they were imported. There is no way back, so it is done in
a fork.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OURS = ("accounts", "reminders", "fanout", "config")
SKIPPED = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__dataclass_fields__", "__slots__"}


class NothingChanged(Exception):
    """The mutant made no difference that could be carried over."""


def swap_in(file: str, source: bytes) -> None:
    module = module_of(file)
    if not Swap().module(module, source):
        raise NothingChanged(file)


def module_of(file: str) -> types.ModuleType:
    return importlib.import_module(file.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))


#: one that a migration makes
FUNCTION = re.compile(r"CREATE FUNCTION .*?\$\$;", re.DOTALL)
TRIGGER = re.compile(r"CREATE TRIGGER .*?;", re.DOTALL)


def renew_functions(file: str) -> None:
    """The functions and triggers that a migration made, as it says now."""
    from django.db import connection

    constants = [value for value in vars(module_of(file)).values() if isinstance(value, str)]
    texts = [text for text in constants if "%(" not in text]  # what is filled in later has a constant of its own
    with connection.cursor() as cursor:
        for made in (FUNCTION, TRIGGER):
            for statement in (found for text in texts for found in made.findall(text)):
                cursor.execute(statement.replace("CREATE", "CREATE OR REPLACE", 1))
    connection.close()


class Swap:
    def __init__(self) -> None:
        self.changes = 0
        self.seen: set[int] = set()

    def module(self, module: types.ModuleType, source: bytes) -> int:
        changed = types.ModuleType(module.__name__)
        changed.__dict__.update(__file__=module.__file__, __package__=module.__package__)
        exec(compile(source, str(module.__file__), "exec"), changed.__dict__)
        for name, new in list(vars(changed).items()):
            if name.startswith("__") or name not in vars(module):
                continue
            old = vars(module)[name]
            if self._same(old, new, module.__name__):
                continue
            setattr(module, name, new)
            self.changes += 1
            self._elsewhere(module, name, new)
        return self.changes

    def _elsewhere(self, origin: types.ModuleType, name: str, new: Any) -> None:
        """A constant that others imported; what they made of it is made again."""
        for other in _our_modules():
            aliases = _imported(other, origin.__name__, name)
            for alias in aliases:
                setattr(other, alias, new)
            if aliases:
                self.module(other, Path(str(other.__file__)).read_bytes())

    def _same(self, old: Any, new: Any, home: str) -> bool:
        """Whether `old` stands for `new` now, perhaps because what differed was carried over into it."""
        if old is new or id(old) in self.seen:
            return True
        if isinstance(old, types.FunctionType) and isinstance(new, types.FunctionType):
            return self._function(old, new, home)
        getattr(old, "cache_clear", lambda: None)()
        for unwrapped in (_wrapped(old, new), _members(old, new, home)):
            if unwrapped is not None:
                self.seen.add(id(old))
                for pair in unwrapped:
                    self._same(*pair, home)
                return self._constants(old, new, home)
        if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
            return self._mapping(old, new, home)
        return (type(old) is type(new) and bool(old == new)) or _unlike(old, new)

    def _function(self, old: types.FunctionType, new: types.FunctionType, home: str) -> bool:
        if old.__module__ != home:  # imported
            return True
        self._kwdefaults(old, new)
        if not _same_code(old.__code__, new.__code__):
            if len(old.__code__.co_freevars) != len(new.__code__.co_freevars):
                raise NothingChanged(f"{old.__qualname__} has another closure now")
            old.__code__ = new.__code__
            self.changes += 1
        return True

    def _kwdefaults(self, old: types.FunctionType, new: types.FunctionType) -> None:
        for name in ("__defaults__", "__kwdefaults__"):
            before, after = getattr(old, name), getattr(new, name)
            if repr(before) != repr(after) and " at 0x" not in repr(after):
                setattr(old, name, after)
                self.changes += 1

    def _constants(self, old: Any, new: Any, home: str) -> bool:
        """Plain values of a class or an object, set where they stand."""
        for name, after in _attributes(new):
            before = next((value for key, value in _attributes(old) if key == name), after)
            if all(_plain(value) or isinstance(value, list | set) for value in (before, after)) and before != after:
                (setattr if isinstance(old, type) else object.__setattr__)(old, name, after)
                self.changes += 1
        return True

    def _mapping(self, old: dict[Any, Any], new: dict[Any, Any], home: str) -> bool:
        for key, value in new.items():
            if not self._same(old[key], value, home):
                old[key] = value
                self.changes += 1
        return True


def _our_modules() -> list[types.ModuleType]:
    return [m for name, m in list(sys.modules.items()) if name.partition(".")[0] in OURS and m is not None]


@cache
def _imported(module: types.ModuleType, origin: str, name: str) -> list[str]:
    """What the module calls a name that it imported from another."""
    source = Path(module.__file__).read_bytes() if module.__file__ else b""
    if name.encode() not in source:  # parsing takes its time
        return []
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == origin]
    return [alias.asname or alias.name for node in imports for alias in node.names if alias.name == name]


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | tuple | frozenset | bytes) or type(value).__module__ == "datetime"


def _unlike(old: Any, new: Any) -> bool:
    """Objects without an equality of their own are taken for the same: loggers, locks, patterns of one text."""
    return not _plain(old) and type(old).__name__ == type(new).__name__ and not isinstance(old, list | set | dict)


def _wrapped(old: Any, new: Any) -> Iterable[tuple[Any, Any]] | None:
    for kind, names in (
        (staticmethod, ("__func__",)),
        (classmethod, ("__func__",)),
        (property, ("fget", "fset")),
        (cached_property, ("func",)),
        (partial, ("func",)),
    ):
        if isinstance(old, kind) and isinstance(new, kind):
            return [(getattr(old, name), getattr(new, name)) for name in names]
    if hasattr(old, "__wrapped__") and hasattr(new, "__wrapped__"):
        return [(old.__wrapped__, new.__wrapped__)]
    return None


def _members(old: Any, new: Any, home: str) -> Iterable[tuple[Any, Any]] | None:
    if isinstance(old, type) and isinstance(new, type) and old.__module__ == home:
        after = dict(_attributes(new))
        return [(value, after[name]) for name, value in _attributes(old) if name in after and not _plain(value)]
    if is_dataclass(old) and is_dataclass(new) and not isinstance(old, type):
        return [(getattr(old, f.name), getattr(new, f.name)) for f in fields(old) if hasattr(new, f.name)]
    return None


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, type):
        yield from ((name, value) for name, value in vars(thing).items() if name not in SKIPPED)
    elif is_dataclass(thing):
        yield from ((f.name, getattr(thing, f.name)) for f in fields(thing) if hasattr(thing, f.name))


def _same_code(old: types.CodeType, new: types.CodeType) -> bool:
    """Apart from the numbers of the lines."""
    if (old.co_code, old.co_names, old.co_varnames, len(old.co_consts)) != (
        new.co_code,
        new.co_names,
        new.co_varnames,
        len(new.co_consts),
    ):
        return False
    return all(
        _same_code(a, b)
        if isinstance(a, types.CodeType) and isinstance(b, types.CodeType)
        else (a, type(a)) == (b, type(b))
        for a, b in zip(old.co_consts, new.co_consts)
    )

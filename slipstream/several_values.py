"""Options that take several values after one flag: ``--concurrency 1 2 5``."""

from collections.abc import Collection, Iterable
from typing import Any

from typer.core import TyperCommand, TyperOption


def spread(args: Iterable[str], flags: Collection[str]) -> list[str]:
    """``--flag 1 2 5`` as ``--flag 1 --flag 2 --flag 5``, for the given flags only."""
    spread_args: list[str] = []
    flag = None  # the flag whose values we are among, once it has its first one
    expects_value = False
    for arg in args:
        if arg.startswith("-"):
            name, equals, _ = arg.partition("=")
            flag = name if name in flags else None
            expects_value = not equals
        elif flag and not expects_value:
            spread_args.append(flag)
        else:
            expects_value = False
        spread_args.append(arg)
    return spread_args


class SeveralValuesCommand(TyperCommand):
    """A command whose list options may be given as one flag with several values.

    Everything up to the next flag belongs to the list option, so that in such a command positional
    arguments come before it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags = {
            name
            for param in self.params
            if isinstance(param, TyperOption) and param.multiple
            for name in param.opts
        }
        return super().parse_args(ctx, spread(args, flags))

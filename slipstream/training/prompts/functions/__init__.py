"""Small Python functions to ask about: what they do in words, inputs, and an implementation."""

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

# What an implementation needs when it is shown alone.
IMPORTS = {
    "math.": "import math",
    "re.": "import re",
    "Counter(": "from collections import Counter",
    "defaultdict(": "from collections import defaultdict",
    "deque(": "from collections import deque",
    "pairwise(": "from itertools import pairwise",
    "date": "from datetime import date, timedelta",
    "heapq.": "import heapq",
    "bisect_": "from bisect import bisect_left, bisect_right",
}


@dataclass(frozen=True)
class Reference:
    """A function that computes the examples shown in prompts.

    ``names`` are what it may be called, ``tasks`` say in the imperative what it does, and
    ``inputs`` are the texts of argument lists, made of Python literals.
    """

    function: Callable[..., Any]
    names: tuple[str, ...]
    tasks: tuple[str, ...]
    inputs: tuple[str, ...]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    @cached_property
    def examples(self) -> list[tuple[str, str]]:
        """Each of ``inputs`` with the ``repr`` of what the function returns for it."""
        calls = [(text, ast.literal_eval(f"({text},)")) for text in self.inputs]
        return [(text, repr(self.function(*arguments))) for text, arguments in calls]

    @cached_property
    def hints(self) -> dict[str, str]:
        """The type hint of each parameter by its name, and that of the result as ``return``."""
        hints = inspect.get_annotations(self.function)
        return {name: hint_text(hint) for name, hint in hints.items()}

    @cached_property
    def source(self) -> str:
        """Its implementation as text, with the imports that it needs."""
        text = inspect.getsource(self.function)
        text = text[text.index("def ") :].rstrip()
        imports = sorted(line for use, line in IMPORTS.items() if use in text)
        return "\n".join(imports) + "\n\n\n" + text if imports else text


def hint_text(hint: object) -> str:
    return hint.__name__ if type(hint) is type else str(hint).replace("typing.", "")


def reference(names: str, *tasks: str, inputs: str) -> Callable[[Callable[..., Any]], Reference]:
    """Make a function a ``Reference``; ``names`` are separated by spaces, ``inputs`` by ``;``."""

    def decorated(function: Callable[..., Any]) -> Reference:
        calls = tuple(text.strip() for text in inputs.split(";"))
        return Reference(function, (function.__name__, *names.split()), tasks, calls)

    return decorated


def references(*modules: ModuleType) -> list[Reference]:
    """All references defined in ``modules``."""
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Reference)
    ]

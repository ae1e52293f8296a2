"""Python functions to complete: a signature and a docstring, with examples that were computed."""

import re
from collections.abc import Callable

from slipstream.training.prompts.combine import Dice, capitalised, fill, sections
from slipstream.training.prompts.functions import (
    Reference,
    dates,
    everyday,
    games,
    grids,
    lists,
    mappings,
    numbers,
    references,
    sequences,
    strings,
    texts,
)

REFERENCES = references(
    lists, sequences, strings, texts, numbers, mappings, grids, dates, everyday, games
)

WORDS = sections("stubs")

# Other names for the parameters, where the task does not mention them.
PARAMETERS = {
    "numbers": "numbers nums values arr xs lst data",
    "items": "items elements lst seq values data",
    "text": "text s string phrase",
    "words": "words strings tokens",
    "first": "first a left",
    "second": "second b right",
    "n": "n num number",
    "matrix": "matrix grid m rows",
    "word": "word w s",
}


class Stub:
    """One way to write a reference as a function without a body."""

    def __init__(self, reference: Reference, dice: Dice) -> None:
        self.dice = dice
        self.name = dice.pick(reference.names)
        self.task = capitalised(dice.pick(reference.tasks))
        self.calls = [
            (f"{self.name}({arguments})", output)
            for arguments, output in dice.some(reference.examples, dice.integer(1, 3))
        ]
        self.parameters = renamed(reference.hints, self.task, dice)
        self.returned = reference.hints["return"]

    def header(self, typed: bool) -> str:
        """The ``def`` line, with ``List[...]`` of the typing module at times."""
        parameters = [
            f"{name}: {hint}" if typed else name for name, hint in self.parameters.items()
        ]
        arrow = f" -> {self.returned}" if typed else ""
        return f"def {self.name}({', '.join(parameters)}){arrow}:"


def renamed(hints: dict[str, str], task: str, dice: Dice) -> dict[str, str]:
    """The parameters' type hints by name, some with another name."""
    parameters: dict[str, str] = {}
    for name in [name for name in hints if name != "return"]:
        others = [other for other in PARAMETERS.get(name, name).split() if other not in parameters]
        keep = re.search(rf"\b{name}\b", task) or dice.chance(0.4) or not others
        parameters[name if keep else dice.pick(others)] = hints[name]
    return parameters


def with_typing(header: str) -> str:
    """The header in the older style, below the import that it needs."""
    used = []
    for new, old in {"list": "List", "dict": "Dict", "tuple": "Tuple", "set": "Set"}.items():
        header, count = re.subn(rf"\b{new}\[", f"{old}[", header)
        used += [old] * bool(count)
    header, count = re.subn(r"(\w[\w\[\], ]*?) \| None", r"Optional[\1]", header)
    used += ["Optional"] * bool(count) + ["Any"] * bool(re.search(r"\bAny\b", header))
    return f"from typing import {', '.join(used)}\n\n\n{header}" if used else header


def doctest(stub: Stub) -> str:
    lines = [f"    >>> {call}\n    {output}" for call, output in stub.calls]
    gap = stub.dice.pick(["\n", "\n\n"])
    return f'    """{stub.dice.pick(["", " "])}{stub.task}.{gap}' + "\n".join(lines) + '\n    """'


def example_lines(stub: Stub) -> str:
    form = stub.dice.pick(WORDS["example_line"])
    lines = [fill(form, {}, stub.dice, call=call, output=out) for call, out in stub.calls]
    title = stub.dice.pick(WORDS["example_title"])
    text = "\n".join("    " + line for line in [title, *("    " + line for line in lines)])
    return f'    """{stub.task}.\n\n{text}\n    """'


def sentence(stub: Stub) -> str:
    call, output = stub.calls[0]
    return f'    """{stub.task}.\n    For example, {call} gives {output}.\n    """'


def one_line(stub: Stub) -> str:
    return f'    """{stub.task}."""'


def single_quotes(stub: Stub) -> str:
    lines = "\n".join(f"    {call} ➞ {output}" for call, output in stub.calls)
    return f"    '''\n    {stub.task}.\n{lines}\n    '''"


def described(stub: Stub, kind: str) -> str:
    """Parameters and result in the style ``google``, ``numpy`` or ``sphinx``."""
    known = {name: stub.dice.pick(WORDS["of_any"]) for name in stub.parameters}
    for name, hint in stub.parameters.items():
        for part, section in {"list[int]": "of_numbers", "str": "of_text", "int": "of_int"}.items():
            if hint == part:
                known[name] = stub.dice.pick(WORDS[section])
    if kind == "google":
        lines = ["Args:", *(f"    {n} ({stub.parameters[n]}): {d}." for n, d in known.items())]
        lines += ["", "Returns:", f"    {stub.returned}: {stub.dice.pick(WORDS['result'])}."]
    elif kind == "numpy":
        lines = ["Parameters", "----------"]
        for name, description in known.items():
            lines += [f"{name} : {stub.parameters[name]}", f"    {capitalised(description)}."]
        lines += ["", "Returns", "-------", stub.returned]
    else:
        lines = [f":param {name}: {description}" for name, description in known.items()]
        lines += [f":return: {stub.dice.pick(WORDS['result'])}"]
    call, output = stub.calls[0]
    lines += ["", f">>> {call}", output] if stub.dice.chance(0.5) else []
    text = "\n".join(f"    {line}" if line else "" for line in lines)
    return f'    """{stub.task}.\n\n{text}\n    """'


DOCSTRINGS: list[Callable[[Stub], str]] = [
    doctest,
    doctest,
    doctest,
    example_lines,
    example_lines,
    sentence,
    one_line,
    single_quotes,
    lambda stub: described(stub, "google"),
    lambda stub: described(stub, "numpy"),
    lambda stub: described(stub, "sphinx"),
]


def write_stub(dice: Dice) -> str:
    """A function to complete, with or without an instruction."""
    stub = Stub(dice.pick(REFERENCES), dice)
    header = stub.header(typed=dice.chance(0.6))
    if dice.chance(0.35):
        header = with_typing(header)
    if dice.chance(0.1):
        lines = [f"# {stub.task}.", *(f"# {call} -> {output}" for call, output in stub.calls)]
        text = "\n".join(lines) + "\n" + header
    else:
        text = header + "\n" + dice.pick(DOCSTRINGS)(stub)
    if dice.chance(0.2):
        text += dice.pick(["\n    pass", "\n    ...", "\n    # your code here", "\n    # TODO"])
    if dice.chance(0.5):
        text = f"```python\n{text}\n```"
    form = dice.pick(WORDS["form"])
    return fill(form, WORDS, dice, stub=text, name=stub.name)


def write_from_tests(dice: Dice) -> str:
    """A function to write, told in a sentence and a few assertions."""
    stub = Stub(dice.pick(REFERENCES), dice)
    tests = "\n".join(f"assert {call} == {output}" for call, output in stub.calls)
    task = stub.task[0].lower() + stub.task[1:]
    return fill(dice.pick(WORDS["tests_form"]), WORDS, dice, task=task, name=stub.name, tests=tests)
